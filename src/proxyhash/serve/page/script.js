// The page's behavior: what a person does becomes a search, and a search becomes what is shown.

import { ask, pictureOf } from "./api.js";
import * as view from "./view.js";

const { element } = view;
const previews = new Map(); // code of an upload -> address of its picture, while the page is open
let info = null;
let current = null; // { key } or { code } or { file }, with title, preview, label
let labels = []; // of the last search without a filter, and how many items had each
let total = 0;
let underWay = null;
let early = null; // a file that came before the page knew what is served

async function start() {
  try {
    view.showFacts(info = await ask("/api/info"));
  } catch (error) {
    view.state("error", error.message);
    view.showNotice("The service does not answer", error.message, "Try again", () => location.reload());
    return;
  }
  if (early && info.search_by_image) await searchWith({ file: early });
  else await followAddress();
}

async function showStart() {
  current = null;
  view.clearNotice();
  view.showLabels([], "", 0, chooseLabel);
  view.state("start");
  if (info.items === 0) {
    view.showNotice("This index is empty", "Add images to it: proxyhash index add FOLDER --index INDEX. They appear here at once.");
  }
  const { items } = await ask("/api/sample?count=12").catch(() => ({ items: [] }));
  if (current === null) view.showItems(items, (item) => searchWith({ key: item.key }));
}

// The address says what is shown, so that going back and sharing a link work.
function followAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (words.has("k") && [...element("k").options].some((option) => option.value === words.get("k"))) element("k").value = words.get("k");
  if (words.has("like")) return search({ key: words.get("like"), label: words.get("label") ?? "" });
  if (words.has("code")) return search({ code: words.get("code"), label: words.get("label") ?? "" });
  return showStart();
}

function searchWith(query) {
  return search({ label: "", ...query }, true);
}

async function search(query, isNew = false) {
  underWay?.abort();
  underWay = new AbortController();
  const { signal } = underWay;
  current = described(query);
  const k = Number(element("k").value);
  const waiting = setTimeout(() => view.showWaiting(Math.min(k, 12), current.title, current.preview), 120);
  view.clearNotice();
  try {
    const begun = performance.now();
    const answer = await askFor(current, k, signal);
    const seconds = (performance.now() - begun) / 1000;
    clearTimeout(waiting);
    if (current.file) {
      previews.set(answer.code, current.preview);
      current = { ...current, file: undefined, code: answer.code };
    }
    if (isNew) history.pushState(null, "", address(current, k));
    show(answer, seconds);
    if (isNew) element("title").focus({ preventScroll: true });
  } catch (error) {
    clearTimeout(waiting);
    if (error.name !== "AbortError") showError(error);
  }
}

function described(query) {
  if (query.file) return { ...query, title: query.file.name || "Pasted image", preview: URL.createObjectURL(query.file) };
  if (query.key) return { ...query, title: query.key, preview: pictureOf(query.key, 256) };
  return { title: "A code", preview: previews.get(query.code), ...query };
}

function askFor({ file, key, code, label }, k, signal) {
  const waiting = (words) => { element("status").textContent = words; };
  if (!file) return ask(key ? "/api/search/key" : "/api/search/code", { json: { ...(key ? { key } : { code }), k, label }, signal, waiting });
  if (file.size > info.body_bytes) throw new Error(`The image has ${mega(file.size)}; the service takes at most ${mega(info.body_bytes)}.`);
  return ask(`/api/search/image?${new URLSearchParams({ k, label })}`, { body: file, signal, waiting });
}

function show(answer, seconds) {
  const found = answer.matches.length;
  const none = answer.matched === false;
  if (!current.label) {
    labels = counted(answer.matches);
    total = found;
  }
  const partly = answer.complete ? "" : ` Only the nearest items were looked through for ${current.label}.`;
  const summary = `${found} nearest${current.label ? ` with ${current.label}` : ""} of ${info.items.toLocaleString("en")} items, in ${Math.max(1, Math.round(1000 * seconds))} ms.${partly}`;
  view.showQuery(current.title, answer, pictureFor(answer), summary);
  view.showLabels(labels, current.label, total, chooseLabel);
  view.showMatches(answer, (match) => searchWith({ key: match.key }));
  if (none) view.showNotice("No match", "Even the nearest item is so far that it is probably something else. The nearest are shown below all the same.");
  else if (found === 0) view.showNotice("Nothing was found", current.label ? `No near item has the label ${current.label}.` : "The index holds nothing to compare with.");
  const nearest = found ? `, nearest ${answer.matches[0].distance} bits away` : "";
  view.state(none ? "none" : "found", `${none ? "No match. " : ""}${found} results${nearest}.`);
}

function showError(error) {
  const query = current;
  view.state("error");
  element("results").replaceChildren();
  view.showLabels([], "", 0, chooseLabel);
  view.showNotice("That did not work", error.message, "Try again", () => search(query));
}

function pictureFor(answer) {
  if (!current.key) return current.preview;
  const own = answer.matches.find((match) => match.key === current.key);
  return own && !own.image ? undefined : current.preview;
}

function counted(matches) {
  const counts = new Map();
  for (const label of matches.flatMap((match) => match.labels)) counts.set(label, (counts.get(label) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, 20);
}

function chooseLabel(label) {
  search({ ...current, label }, true);
}

function address({ key, code, label }, k) {
  const words = new URLSearchParams(key ? { like: key } : { code });
  words.set("k", k);
  if (label) words.set("label", label);
  return `#${words}`;
}

const mega = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

function takeFile(files) {
  const file = [...files].find((one) => one.type.startsWith("image/")) ?? files[0];
  if (info === null) early = file ?? null;
  else if (file && info.search_by_image) searchWith({ file });
}

element("choose").onclick = () => element("file").click();
element("file").onchange = ({ target }) => {
  takeFile(target.files);
  target.value = ""; // so that the same file can be chosen again
};
element("options").onsubmit = (event) => {
  event.preventDefault();
  const key = element("key").value.trim();
  if (key) searchWith({ key });
};
element("k").onchange = () => current && search(current, true);
document.querySelector(".brand").onclick = (event) => {
  event.preventDefault();
  history.pushState(null, "", "/");
  showStart();
};
window.onpopstate = followAddress;
document.addEventListener("paste", ({ clipboardData }) => clipboardData.files.length && takeFile(clipboardData.files));
let inside = 0; // of how many elements a dragged file has entered: leaving a child is not leaving the page
window.ondragenter = () => document.body.classList.toggle("dragging", (inside += 1) > 0);
window.ondragleave = () => document.body.classList.toggle("dragging", (inside -= 1) > 0);
window.ondragover = (event) => event.preventDefault();
window.ondrop = (event) => {
  event.preventDefault();
  document.body.classList.toggle("dragging", (inside = 0) > 0);
  if (event.dataTransfer.files.length) takeFile(event.dataTransfer.files);
};
start();
