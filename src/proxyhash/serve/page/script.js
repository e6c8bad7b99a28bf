// Behavior of the page: a user's action becomes a search, and its response is shown.

import { getInfo, getSamples, searchIndex, thumbnailUrl } from "./api.js";
import { watchDrops } from "./drag.js";
import * as filter from "./filter.js";
import { watchKeys } from "./keyboard.js";
import { parseVector, readVector } from "./vectors.js";
import * as view from "./view.js";

const PASTED_VECTOR = "Pasted vector";
const SAMPLES = 12;
const LOADING_DELAY = 120; // milliseconds; a faster response replaces the old results directly

const { element } = view;
const previews = new Map(); // code of an uploaded image -> its URL, while the page is open
let info = null;
let current = null; // one of { key }, { code }, { file }, { vector }, with title, preview, label and where
let labelCounts = []; // of the last search without a label
let total = null; // number of its results
let countedWhere = ""; // its filter
let controller = null; // of the request in flight
let pendingQuery = null; // a query that came before the response to `getInfo`

async function start() {
  try {
    info = await getInfo();
  } catch (error) {
    view.setState("error", error.message);
    view.showNotice("The service does not answer", error.message, { action: "Try again", onAction: () => location.reload() });
    return;
  }
  view.showInfo(info);
  filter.showExample(info.columns);
  if (pendingQuery?.file && (info.can_search_images || info.can_search_vectors)) useFiles([pendingQuery.file]);
  else if (pendingQuery && !pendingQuery.file) await startSearch(pendingQuery);
  else await followAddress();
}

async function showStart(isNew = false) {
  controller?.abort();
  controller = new AbortController();
  const { signal } = controller;
  const where = filter.filterText();
  current = null;
  clearMessages();
  view.setTitle("");
  showLabels([], null);
  view.setState("start");
  if (info.items === 0) {
    const what = info.can_search_vectors ? "vectors with proxyhash index add FILE" : "images with proxyhash index add FOLDER";
    view.showNotice("This index is empty", `Add ${what} --index INDEX. They appear here at once.`);
  }
  try {
    const items = await getSamples(SAMPLES, where, { signal });
    if (isNew) history.pushState(null, "", address({ where }));
    showSamples(items, where);
  } catch (error) {
    if (error.name === "AbortError") return;
    view.showSamples([], "");
    if (error.field === "where") filter.showFilterError(error.message);
  }
}

function showSamples(items, where) {
  const count = items.length;
  let title = "Or start with one of these items.";
  if (where) title = "Or start with one of these items, which match the filter.";
  if (where && count < SAMPLES) title = `Only ${view.plural(count, "item")} ${count === 1 ? "matches" : "match"} the filter.`;
  view.showSamples(items, title, cardOptions(where));
  if (where && count === 0 && info.items > 0) showNothing("", where);
  else if (where) view.setState("start", title);
}

// The address holds the state of the page, so that the back button and shared links work.
function followAddress() {
  const state = new URLSearchParams(location.hash.slice(1));
  const k = state.get("k");
  if ([...element("k").options].some((option) => option.value === k)) element("k").value = k;
  const label = state.get("label") ?? "";
  if (state.get("key")) return search({ key: state.get("key"), label });
  if (state.get("code")) return search({ code: state.get("code"), label });
  return showStart();
}

function readFilter() {
  filter.setFilter(new URLSearchParams(location.hash.slice(1)).get("where") ?? "");
}

function address({ key, code, label, where }) {
  const state = new URLSearchParams(key ? { key } : code ? { code } : {});
  if (key || code) state.set("k", element("k").value);
  if (label) state.set("label", label);
  if (where) state.set("where", where);
  return state.size ? `#${state}` : location.pathname;
}

function cardOptions(where) {
  return { types: info.columns, linkTo: ({ key }) => address({ key, where }), onChoose: ({ key }) => startSearch({ key }) };
}

function startSearch(query) {
  if (info === null) {
    pendingQuery = query;
    return Promise.resolve();
  }
  return search({ label: "", ...query }, true);
}

async function search(query, isNew = false) {
  controller?.abort();
  controller = new AbortController();
  const { signal } = controller;
  current = withTitle({ ...query, where: filter.filterText() });
  const k = Number(element("k").value);
  const timer = setTimeout(() => view.showLoading(Math.min(k, 12), current.title, current.preview), LOADING_DELAY);
  signal.addEventListener("abort", () => clearTimeout(timer));
  clearMessages();
  try {
    const startTime = performance.now();
    const response = await requestSearch(current, k, signal);
    const milliseconds = Math.max(1, Math.round(performance.now() - startTime));
    clearTimeout(timer);
    if (current.file) previews.set(response.code, current.preview);
    if (current.file || current.vector) current = { ...current, file: undefined, vector: undefined, code: response.code };
    if (isNew) history.pushState(null, "", address(current));
    showResponse(response, k, milliseconds);
    if (isNew && !filter.isFilterFocused()) element("title").focus({ preventScroll: true });
  } catch (error) {
    clearTimeout(timer);
    if (error.field === "where") showWrongFilter(error.message, isNew);
    else if (error.name !== "AbortError") showError(error);
  }
}

function clearMessages() {
  view.clearNotice();
  filter.clearFilterError();
}

function withTitle(query) {
  if (query.file) return { ...query, title: query.file.name || "Pasted image", preview: query.preview ?? URL.createObjectURL(query.file) };
  if (query.key) return { ...query, title: query.key, preview: info.can_search_vectors ? undefined : thumbnailUrl(query.key, 256) };
  return { title: "A code", preview: previews.get(query.code), ...query };
}

function requestSearch(query, k, signal) {
  const { file } = query;
  if (file && file.size > info.max_image_bytes) {
    throw new Error(`The image has ${megabytes(file.size)}; the service takes at most ${megabytes(info.max_image_bytes)}.`);
  }
  return searchIndex(query, k, { signal, onRetry: (message) => { element("status").textContent = message; } });
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

function showResponse(response, k, milliseconds) {
  const { matches } = response;
  const { label, where } = current;
  const count = matches.length;
  const isNoMatch = count > 0 && response.matched === false;
  if (!label) showLabels(countLabels(matches), count);
  else if (countedWhere === where && labelCounts.some(([one]) => one === label)) showLabels(labelCounts, total);
  else showLabels([[label, null]], null);
  const summary = count === 0 ? "" : `${describeResults(count, k)}, in ${milliseconds}\u00a0ms.`;
  view.showQuery(current.title, response, queryPreview(matches), summary);
  view.showMatches(response, cardOptions(where));
  if (isNoMatch) showNoMatch(matches[0]);
  else if (count === 0) showNothing(label, where);
  const nearest = count ? `, nearest ${view.plural(matches[0].distance, "bit")} away` : "";
  const isAll = count < k && (label || where) ? " No other item matches." : "";
  view.setState(isNoMatch ? "no-match" : "results", `${isNoMatch ? "No match. " : ""}${view.plural(count, "result")}${nearest}.${isAll}`);
}

function describeResults(count, k) {
  const { label, where } = current;
  const all = view.plural(info.items, "item");
  if (count === k || !(label || where)) {
    return `${count} nearest${label ? ` with the label ${label}` : ""}${where ? " that match the filter," : ""} of ${all}`;
  }
  const isOne = count === 1;
  const conditions = [label && `${isOne ? "has" : "have"} the label ${label}`, where && `${isOne ? "matches" : "match"} the filter`];
  return `Only ${count} of ${all} ${conditions.filter(Boolean).join(" and ")}`;
}

function showNothing(label, where) {
  const clearWhere = () => { filter.clearFilter(); applyFilter(); };
  const sentence = where ? `No item${label ? ` with the label ${label}` : ""} matches the filter.` : label ? `No item has the label ${label}.` : "The index has no items.";
  view.showNotice("Nothing was found", sentence, where ? { action: "Clear the filter", onAction: clearWhere } : {});
}

function showWrongFilter(sentence, isNew) {
  showLabels([], null);
  view.showUnsearched(current.title, current.preview, "Not searched: the filter has an error.");
  filter.showFilterError(sentence);
  if (isNew) filter.focusFilter();
}

function showNoMatch({ distance, expected_precision: share }) {
  const values = { distance: view.plural(distance, "bit"), share: view.percent(share), threshold: view.percent(info.threshold) };
  view.showNotice(
    "No match",
    `The nearest item is ${values.distance} away. At this distance, only ${values.share} of pairs of validation images have the same label, so it is probably something else.`,
    { explanation: view.noMatchExplanation(values) },
  );
}

function showError(error, canRetry = true) {
  const query = current;
  view.setState("error");
  view.setTitle(query.title);
  view.showSamples([], "");
  showLabels([], null);
  view.showNotice("That did not work", error.message, canRetry ? { action: "Try again", onAction: () => search(query) } : {});
}

// An item that was added as a code has no image.
function queryPreview(matches) {
  const own = matches.find((match) => match.key === current.key);
  return own && !own.has_image ? undefined : current.preview;
}

function countLabels(matches) {
  const counts = new Map();
  for (const label of matches.flatMap((match) => match.labels)) counts.set(label, (counts.get(label) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, 20);
}

function showLabels(counts, count) {
  labelCounts = counts;
  total = count;
  countedWhere = current?.where ?? "";
  view.showLabels(counts, current?.label ?? "", count, (label) => search({ ...current, label }, true));
}

function useFiles(files) {
  const file = [...files].find(({ type }) => type.startsWith("image/")) ?? files[0];
  if (!file) return;
  if (info?.can_search_vectors) searchVector(file.name || PASTED_VECTOR, () => readVector(file));
  else if (info === null || info.can_search_images) startSearch({ file });
}

// `read` returns the vector, or throws an error for the user.
async function searchVector(title, read) {
  let vector;
  try {
    vector = await read();
  } catch (error) {
    controller?.abort();
    current = { title };
    showError(error, false);
    current = null; // there is nothing to search again
    return;
  }
  await startSearch({ vector, title });
}

// Search again with the filter of the field.
function applyFilter() {
  if (info === null) return;
  if (current === null) showStart(true);
  else search(current, true);
}

// Return whether there was something to clear.
function clear() {
  if (info === null || (document.body.dataset.state === "start" && !filter.filterText())) return false;
  goToStart();
  return true;
}

function goToStart() {
  history.pushState(null, "", location.pathname);
  filter.setFilter("");
  showStart();
}

for (const id of ["choose", "choose-vector"]) element(id).onclick = () => element("file").click();
element("vector-form").onsubmit = (event) => {
  event.preventDefault();
  searchVector(PASTED_VECTOR, () => parseVector(element("vector").value));
};
element("vector").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  element("vector-form").requestSubmit();
};
element("file").onchange = ({ target }) => {
  useFiles(target.files);
  target.value = ""; // so that the same file can be chosen again
};
element("options").onsubmit = (event) => {
  event.preventDefault();
  const key = element("key").value.trim();
  if (key) startSearch({ key });
};
element("k").onchange = () => current && search(current, true);
document.querySelector(".brand").onclick = (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || info === null) return;
  event.preventDefault();
  goToStart();
};
window.onpopstate = () => {
  readFilter();
  if (info !== null) followAddress();
};
document.addEventListener("paste", ({ clipboardData, target }) => {
  if (clipboardData.files.length) useFiles(clipboardData.files);
  else if (info?.can_search_vectors && !target.matches("input, textarea")) {
    searchVector(PASTED_VECTOR, () => parseVector(clipboardData.getData("text/plain")));
  }
});
watchDrops(element("search-box"), { onFiles: useFiles, onKey: (key) => startSearch({ key }) });
watchKeys({ onClear: clear });
filter.watchFilter(applyFilter);
readFilter();
start();
