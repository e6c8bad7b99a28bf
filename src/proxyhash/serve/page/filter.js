// The filter of searches: its field, what is wrong with it, and help with the columns of the index.

import { getInfo, getSamples } from "./api.js";
import { quoteName, quoteValue } from "./columns.js";
import { create, element } from "./view.js";

const SAMPLES = 24; // items whose values are examples
const EXAMPLES = 4; // of a column
const EXAMPLE_LENGTH = 24;
const COMPARISONS = { number: "> 20", date: ">= '2024-05-31'", text: "== 'text'" };
const PREFERENCE = Object.keys(COMPARISONS);

const field = element("where");

export const filterText = () => field.value.trim();
export const focusFilter = () => field.focus();
export const isFilterFocused = () => document.activeElement === field;

export function setFilter(text) {
  field.value = text;
  showClearButton();
}

export function showFilterError(sentence) {
  field.setAttribute("aria-invalid", "true");
  element("where-error").textContent = sentence;
}

export function clearFilterError() {
  field.removeAttribute("aria-invalid");
  element("where-error").textContent = "";
}

// Show a filter that fits the index as the placeholder of the field.
export function showExample(columns) {
  const [[name, type] = []] = Object.entries(columns).sort(([, a], [, b]) => PREFERENCE.indexOf(a) - PREFERENCE.indexOf(b));
  field.placeholder = `For example: label == 'cat'${name === undefined ? "" : ` and ${quoteName(name)} ${COMPARISONS[type]}`}`;
}

export function clearFilter() {
  setFilter("");
  field.focus();
}

export function watchFilter(onApply) {
  const help = element("where-help");
  element("where-form").onsubmit = (event) => {
    event.preventDefault();
    onApply();
  };
  field.oninput = showClearButton;
  element("clear-where").onclick = () => {
    clearFilter();
    onApply();
  };
  element("toggle-where-help").onclick = ({ currentTarget }) => {
    help.hidden = !help.hidden;
    currentTarget.setAttribute("aria-expanded", String(!help.hidden));
    if (!help.hidden) showColumns();
  };
}

function showClearButton() {
  element("clear-where").hidden = field.value === "";
}

// Columns may have been added since the page was opened.
async function showColumns() {
  const [{ columns }, items] = await Promise.all([getInfo(), getSamples(SAMPLES)]).catch((error) => {
    showFilterError(error.message);
    return [{ columns: {} }, []];
  });
  const rows = [
    columnRow("label", "texts", "text", items.flatMap(({ labels }) => labels)),
    columnRow("key", "text", "text", items.map(({ key }) => key)),
    ...Object.entries(columns).map(([name, type]) => columnRow(name, type, type, items.map((item) => item.columns[name]))),
  ];
  element("where-help").querySelector("tbody").replaceChildren(...rows);
}

function columnRow(name, typeText, type, values) {
  const row = create("tr", "");
  const header = Object.assign(create("th", ""), { scope: "row" });
  const button = Object.assign(create("button", quoteName(name)), { type: "button", onclick: () => insert(quoteName(name)) });
  button.setAttribute("aria-label", `Insert ${name} into the filter`);
  header.append(button);
  const known = [...new Set(values.filter((value) => value !== undefined))].slice(0, EXAMPLES);
  const examples = known.map((value) => quoteValue(value, type, EXAMPLE_LENGTH)).join(", ");
  row.append(header, create("td", typeText), create("td", examples));
  return row;
}

// Insert a name where the cursor is, with spaces around it.
function insert(name) {
  const { selectionStart, selectionEnd, value } = field;
  const before = /[^\s(]$/.test(value.slice(0, selectionStart)) ? " " : "";
  const after = /^\s/.test(value.slice(selectionEnd)) ? "" : " ";
  field.setRangeText(`${before}${name}${after}`, selectionStart, selectionEnd, "end");
  showClearButton();
  field.focus();
}
