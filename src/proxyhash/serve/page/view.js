// What is on the page. Text from the index only ever becomes text: nothing here makes HTML of it.

import { pictureOf } from "./api.js";
import { mosaic, strip } from "./bits.js";

export const element = (id) => document.getElementById(id);
const template = (id) => element(id).content.firstElementChild.cloneNode(true);

const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

export function state(name, words = "") {
  document.body.dataset.state = name;
  element("status").textContent = words;
  element("results").setAttribute("aria-busy", String(name === "loading"));
}

export function showFacts(info) {
  element("facts").textContent = `${plural(info.items, "item")} of ${info.bits} bits`;
  document.body.dataset.images = info.search_by_image ? "yes" : "no";
}

export function showNotice(title, sentence, button, pressed) {
  const parts = [text("h2", title), text("p", sentence)];
  if (button !== undefined) {
    const again = Object.assign(text("button", button), { type: "button", className: "again", onclick: pressed });
    parts.push(again);
  }
  element("notice").replaceChildren(...parts);
}

export function clearNotice() {
  element("notice").replaceChildren();
}

export function showWaiting(count, title, preview) {
  const panel = element("query");
  element("title").textContent = title;
  panel.querySelector(".summary").textContent = "Searching…";
  panel.querySelector(".code").replaceChildren();
  panel.querySelector(".picture").classList.toggle("ghostly", preview === undefined);
  panel.querySelector(".picture").replaceChildren(...(preview === undefined ? [] : [image(preview, "")]));
  element("results").replaceChildren(...Array.from({ length: count }, () => template("waiting")));
  state("loading", "Searching");
}

export function showQuery(title, answer, preview, summary) {
  const panel = element("query");
  const picture = panel.querySelector(".picture");
  picture.classList.remove("ghostly");
  picture.replaceChildren(preview === undefined ? mosaic(answer.code, answer.bits) : image(preview, "The query"));
  element("title").textContent = title;
  panel.querySelector(".summary").textContent = summary;
  panel.querySelector(".code").replaceChildren(strip(answer.code, answer.bits));
}

export function showMatches(answer, chosen) {
  const cards = answer.matches.map((match) => {
    const card = template("card");
    fill(card, match, answer.bits, chosen);
    card.querySelector(".bits").textContent = plural(match.distance, "bit");
    const alike = match.expected_precision;
    card.querySelector(".alike").textContent = alike === null ? "" : `${Math.round(100 * alike)} % alike`;
    card.querySelector(".code").append(strip(match.code, answer.bits, answer.code, 20));
    const labels = match.labels.length ? `, ${match.labels.join(", ")}` : "";
    card.querySelector("button").setAttribute("aria-label", `${match.key}, ${plural(match.distance, "bit")} away${labels}. Search with it`);
    return card;
  });
  element("results").replaceChildren(...cards);
}

export function showItems(items, chosen) {
  const cards = items.map((item) => {
    const card = template("card");
    fill(card, item, 0, chosen);
    card.classList.add("example");
    card.querySelector("button").setAttribute("aria-label", `Search with ${item.key}`);
    return card;
  });
  element("begin").classList.toggle("some", cards.length > 0);
  element("results").replaceChildren(...cards);
}

export function showLabels(labels, current, total, chosen) {
  const chip = (label, words, count) => {
    const button = Object.assign(text("button", `${words} `), { type: "button", onclick: () => chosen(label) });
    button.setAttribute("aria-pressed", String(label === current));
    button.append(text("small", String(count)));
    return button;
  };
  const chips = labels.map(([label, count]) => chip(label, label, count));
  element("filter").replaceChildren(...(chips.length ? [chip("", "All", total), ...chips] : []));
}

function fill(card, item, bits, chosen) {
  const picture = card.querySelector(".picture");
  const nothing = () => (bits ? [mosaic(item.code, bits)] : []);
  picture.replaceChildren(...(item.image ? [image(pictureOf(item.key, 256), "", () => picture.replaceChildren(...nothing()))] : nothing()));
  card.querySelector(".name").textContent = item.key;
  card.querySelector(".labels").textContent = item.labels.join(", ");
  card.querySelector("button").onclick = () => chosen(item);
}

function image(source, alt, failed = null) {
  return Object.assign(document.createElement("img"), { onerror: failed, alt, loading: "lazy", decoding: "async", src: source });
}

function text(kind, words) {
  return Object.assign(document.createElement(kind), { textContent: words });
}
