// Contents of the page. Text from the index is only ever set as text, never as HTML.

import { thumbnailUrl } from "./api.js";
import { mosaic, strip } from "./bits.js";
import { formatValue, shorten } from "./columns.js";
import { makeDraggable } from "./drag.js";

const THUMBNAIL_SIZE = 256;
const BRIEF_LENGTH = 40; // characters of a value
const WHOLE_LENGTH = 500;

export const element = (id) => document.getElementById(id);
const clone = (id) => element(id).content.firstElementChild.cloneNode(true);
export const create = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });

export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// Rounded down, so that 100 % means all.
export function percent(share) {
  const whole = Math.floor(100 * share + 1e-9);
  return whole === 0 && share > 0 ? "under 1\u00a0%" : `${whole}\u00a0%`;
}

export function setState(name, status = "") {
  document.body.dataset.state = name;
  element("status").textContent = status;
  element("results").setAttribute("aria-busy", String(name === "loading"));
}

export function setTitle(title) {
  element("title").textContent = title;
  document.title = title ? `${title} · proxyhash` : "proxyhash";
}

export function showInfo(info) {
  const [items, bits] = element("info").children;
  items.textContent = plural(info.items, "item");
  bits.textContent = `of ${info.bits} bits`;
  document.body.dataset.input = info.can_search_images ? "image" : info.can_search_vectors ? "vector" : "code";
  element("width").textContent = info.width === null ? "" : info.width.toLocaleString("en");
  element("file").accept = info.can_search_vectors ? ".npy,.json,.txt,.csv" : "image/*";
}

export function showNotice(title, text, { action, onAction, explanation } = {}) {
  const parts = [];
  if (action !== undefined) parts.push(Object.assign(create("button", action), { type: "button", className: "primary", onclick: onAction }));
  if (explanation !== undefined) parts.push(explanation);
  element("message").replaceChildren(create("h2", title), create("p", text));
  element("more").replaceChildren(...parts);
  element("notice").hidden = false;
}

export function clearNotice() {
  element("notice").hidden = true;
  element("message").replaceChildren();
  element("more").replaceChildren();
}

export function noMatchExplanation(values) {
  const explanation = clone("no-match-explanation");
  for (const [name, text] of Object.entries(values)) explanation.querySelector(`.${name}`).textContent = text;
  return explanation;
}

export function showLoading(count, title, preview) {
  showQueryWithoutCode(title, preview, "Searching…");
  element("query").querySelector(".thumbnail").classList.toggle("shimmer", preview === undefined);
  element("results").replaceChildren(...Array.from({ length: count }, () => clone("skeleton")));
  setState("loading", "Searching");
}

// Show a query that was not searched.
export function showUnsearched(title, preview, summary) {
  showQueryWithoutCode(title, preview, summary);
  element("query").querySelector(".thumbnail").classList.remove("shimmer");
  element("samples-title").hidden = true;
  element("results").replaceChildren();
  setState("unsearched");
}

function showQueryWithoutCode(title, preview, summary) {
  const panel = element("query");
  setTitle(title);
  panel.querySelector(".summary").textContent = summary;
  panel.querySelector(".code").replaceChildren();
  panel.querySelector(".thumbnail").replaceChildren(...(preview === undefined ? [] : [image(preview, "")]));
}

export function showQuery(title, response, preview, summary) {
  const panel = element("query");
  const thumbnail = panel.querySelector(".thumbnail");
  const drawing = mosaic(response.code, response.bits);
  thumbnail.classList.remove("shimmer");
  thumbnail.replaceChildren(preview === undefined ? drawing : image(preview, "The query", () => thumbnail.replaceChildren(drawing)));
  setTitle(title);
  panel.querySelector(".summary").textContent = summary;
  panel.querySelector(".code").replaceChildren(strip(response.code, response.bits));
}

// `options` has the types of columns, `linkTo`, which returns the address of a search with an item, and `onChoose`.
export function showMatches({ bits, code, matches }, options) {
  const cards = matches.map((match) => {
    const card = itemCard(match, bits, options);
    const precision = card.querySelector(".precision");
    const share = match.expected_precision;
    precision.textContent = share === null ? "" : `same label: ${percent(share)}`;
    if (share !== null) precision.title = precisionSentence(share);
    card.querySelector(".distance").textContent = plural(match.distance, "bit");
    card.querySelector(".code").append(strip(match.code, bits, code, 20));
    const parts = [match.key, plural(match.distance, "bit"), match.labels.join(", "), precision.textContent].filter(Boolean);
    card.querySelector("a").setAttribute("aria-label", `${parts.join(", ")}. Search with it`);
    return card;
  });
  element("precision-note").hidden = !matches.some((match) => match.expected_precision !== null);
  element("results").replaceChildren(...cards);
}

export function showSamples(items, title, options) {
  const cards = items.map((item) => {
    const card = itemCard(item, 0, options);
    card.classList.add("sample");
    card.querySelector("a").setAttribute("aria-label", `Search with ${[item.key, ...item.labels].join(", ")}`);
    return card;
  });
  element("samples-title").textContent = title;
  element("samples-title").hidden = cards.length === 0;
  element("results").replaceChildren(...cards);
}

// `counts` holds pairs of a label and the number of results that have it, or null.
export function showLabels(counts, current, total, onChoose) {
  const chip = (label, text, count) => {
    const button = Object.assign(create("button", text), { type: "button", onclick: () => onChoose(label) });
    button.setAttribute("aria-pressed", String(label === current));
    if (count !== null) button.append(" ", create("small", String(count)));
    return button;
  };
  const chips = counts.map(([label, count]) => chip(label, label, count));
  element("filter").replaceChildren(...(chips.length ? [chip("", "All", total), ...chips] : []));
}

function precisionSentence(share) {
  return `Of the pairs of validation images at this distance, ${percent(share)} have the same label.`;
}

function itemCard(item, bits, { types, linkTo, onChoose }) {
  const card = clone("card");
  const thumbnail = card.querySelector(".thumbnail");
  const drawing = bits ? [mosaic(item.code, bits)] : [];
  const showDrawing = () => thumbnail.replaceChildren(...drawing);
  if (item.has_image) thumbnail.replaceChildren(image(thumbnailUrl(item.key, THUMBNAIL_SIZE), "", showDrawing));
  else showDrawing();
  card.classList.toggle("no-image", !item.has_image);
  card.querySelector(".name").textContent = item.key;
  card.querySelector(".labels").textContent = item.labels.join(", ");
  showColumns(card.querySelector(".columns"), item.columns, types);
  const link = card.querySelector("a");
  link.href = linkTo(item);
  link.onclick = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return; // for example, open a new tab
    event.preventDefault();
    onChoose(item);
  };
  makeDraggable(link, item.key);
  return card;
}

// Show the columns of an item in one line, which opens to all of them.
function showColumns(details, columns, types) {
  const entries = Object.entries(columns).map(([name, value]) => [name, formatValue(value, types[name])]);
  details.hidden = entries.length === 0;
  const brief = entries.flatMap(([name, text], i) => [i ? " · " : "", create("span", name), ` ${shorten(text, BRIEF_LENGTH)}`]);
  details.querySelector(".brief").replaceChildren(...brief);
  const rows = entries.map(([name, text]) => {
    const row = create("div", "");
    row.append(create("dt", name), create("dd", shorten(text, WHOLE_LENGTH)));
    return row;
  });
  details.querySelector("dl").replaceChildren(...rows);
}

function image(source, alt, onerror = null) {
  return Object.assign(document.createElement("img"), { onerror, alt, loading: "lazy", decoding: "async", draggable: false, src: source });
}
