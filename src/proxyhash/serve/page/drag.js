// Drag and drop: files from outside the page, and items of the page.

const KEY_TYPE = "application/x-proxyhash-key";

export function makeDraggable(link, key) {
  link.draggable = true;
  link.addEventListener("dragstart", ({ dataTransfer }) => {
    dataTransfer.clearData(); // the browser put the address of the link there
    dataTransfer.setData(KEY_TYPE, key);
    dataTransfer.setData("text/plain", key);
    dataTransfer.effectAllowed = "copy";
    markDrag("item");
  });
}

// A file may be dropped anywhere, an item only on the search box.
export function watchDrops(searchBox, { onFiles, onKey }) {
  let depth = 0; // entered elements: leaving a child is not leaving the page
  const hasItem = ({ dataTransfer }) => dataTransfer.types.includes(KEY_TYPE);
  const countFile = (event, change) => {
    if (hasItem(event)) return;
    depth = Math.max(0, depth + change);
    markDrag(depth > 0 ? "file" : null);
  };
  const end = () => {
    depth = 0;
    markDrag(null);
  };
  window.addEventListener("dragenter", (event) => countFile(event, 1));
  window.addEventListener("dragleave", (event) => countFile(event, -1));
  window.addEventListener("dragend", end);
  window.addEventListener("dragover", (event) => {
    event.preventDefault();
    event.dataTransfer.dropEffect = hasItem(event) && !searchBox.contains(event.target) ? "none" : "copy";
  });
  window.addEventListener("drop", (event) => {
    event.preventDefault();
    end();
    const { dataTransfer, target } = event;
    if (!hasItem(event)) {
      if (dataTransfer.files.length) onFiles(dataTransfer.files);
    } else if (searchBox.contains(target)) onKey(dataTransfer.getData(KEY_TYPE));
  });
}

function markDrag(kind) {
  if (kind) document.body.dataset.drag = kind;
  else delete document.body.dataset.drag;
}
