// Keyboard shortcuts and the dialog that lists them.

const SETTING = "proxyhash.single-key-shortcuts";
const element = (id) => document.getElementById(id);

export function watchKeys({ onClear }) {
  const help = element("help");
  const isEnabled = element("single-keys");
  isEnabled.checked = readSetting() !== "off";
  isEnabled.onchange = () => writeSetting(isEnabled.checked ? "on" : "off");
  element("open-help").onclick = () => help.showModal();
  element("close-help").onclick = () => help.close();
  help.onclick = ({ target }) => {
    if (target === help) help.close(); // the backdrop
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open) return;
    if (handleKey(event, { help, isEnabled: isEnabled.checked, onClear })) event.preventDefault();
  });
}

// Return whether the key was a shortcut here.
function handleKey({ key, target }, { help, isEnabled, onClear }) {
  if (target === element("key") && key === "Escape") return leaveKeyField(target);
  if (target === element("where") && key === "Escape") return leaveFilter(target);
  if (target.matches("input, select, textarea")) return false;
  if (key === "/" && isEnabled) element("key").select();
  else if (key === "f" && isEnabled) element("where").focus();
  else if (key === "?" && isEnabled) help.showModal();
  else if (key === "Escape") return onClear();
  else return moveFocus(key);
  return true;
}

function leaveKeyField(field) {
  field.value = "";
  field.blur();
  return true;
}

function leaveFilter(field) {
  field.blur(); // its text stays: it may be long
  return true;
}

// Move the focus in the grid of results, or to the first visible result.
function moveFocus(key) {
  const links = [...document.querySelectorAll("#results a")];
  const index = links.indexOf(document.activeElement);
  const isOutside = [document.body, element("title")].includes(document.activeElement);
  let next;
  if (index >= 0) next = links[nextIndex(key, index, links)];
  else if (isOutside && ["ArrowDown", "ArrowRight"].includes(key)) {
    next = links.find((link) => link.getBoundingClientRect().top >= 0) ?? links[0];
  }
  next?.focus();
  return next !== undefined;
}

function nextIndex(key, index, links) {
  const columns = links.filter((link) => link.offsetTop === links[0].offsetTop).length;
  const last = links.length - 1;
  const isLastRow = Math.floor(index / columns) === Math.floor(last / columns);
  switch (key) {
    case "ArrowLeft": return index - 1;
    case "ArrowRight": return index + 1;
    case "ArrowUp": return index - columns;
    case "ArrowDown": return isLastRow ? -1 : Math.min(index + columns, last);
    case "Home": return 0;
    case "End": return last;
    default: return -1;
  }
}

// The storage of a browser may be closed to pages; the setting then lasts until the page is left.
function readSetting() {
  try {
    return localStorage.getItem(SETTING);
  } catch {
    return null;
  }
}

function writeSetting(value) {
  try {
    localStorage.setItem(SETTING, value);
  } catch {
    // as above
  }
}
