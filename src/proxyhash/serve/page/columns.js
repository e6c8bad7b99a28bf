// Columns of items as text: for people, and as constants of a filter.

const WORD = /^[\p{L}_][\p{L}\p{N}_]*$/u;
const RESERVED = ["and", "or", "not", "in", "None", "True", "False"]; // words that are no names in a filter
const MIDNIGHT = /T00:00:00Z$/;

export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);

// `type` is that of the column: number, text or date.
export function formatValue(value, type) {
  if (type !== "date") return String(value);
  return MIDNIGHT.test(value) ? value.replace(MIDNIGHT, "") : value.replace("T", " ").replace(/Z$/, " UTC");
}

// Return a name as a filter has it.
export const quoteName = (name) => (WORD.test(name) && !RESERVED.includes(name) ? name : `\`${name.replaceAll("`", "``")}\``);

// Return a value as a constant of a filter; a long text is cut.
export function quoteValue(value, type, length) {
  if (type === "number") return String(value);
  const text = type === "date" ? value.replace(MIDNIGHT, "") : shorten(value, length).replaceAll("\\", "\\\\");
  return text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll("'", "\\'")}'`;
}
