// Drawings of codes. Bit i of a code is bit i % 8 of byte i // 8; two hexadecimal digits are a byte.

const SVG = "http://www.w3.org/2000/svg";
const BITS_PER_LINE = 64;
const LINE_HEIGHT = 12; // where a bit is 4 wide

export function unpackBits(code, count) {
  return Array.from({ length: count }, (_, i) => (parseInt(code.substr(2 * (i >> 3), 2), 16) >> (i & 7)) & 1);
}

// Draw a code as a strip. Bits that differ from `other` are taller and have another color.
export function strip(code, count, other, height = LINE_HEIGHT) {
  const bits = unpackBits(code, count);
  const otherBits = other === undefined ? bits : unpackBits(other, count);
  const paths = { off: "", on: "", differs: "" };
  bits.forEach((bit, i) => {
    const differs = bit !== otherBits[i];
    const x = 4 * (i % BITS_PER_LINE) + 0.4;
    const y = (height + 1) * Math.floor(i / BITS_PER_LINE);
    paths[differs ? "differs" : bit ? "on" : "off"] += differs ? bar(x, y, height) : bar(x, y + height / 5, 0.6 * height);
  });
  const differing = bits.flatMap((bit, i) => (bit === otherBits[i] ? [] : [i + 1]));
  const label = other === undefined ? `Code of ${count} bits: ${bits.join("")}` : describeDifference(differing, count);
  const lines = Math.ceil(count / BITS_PER_LINE);
  return drawing("strip", `0 0 ${4 * Math.min(count, BITS_PER_LINE)} ${(height + 1) * lines - 1}`, paths, label);
}

// Draw a code as a square, for an item without an image.
export function mosaic(code, count) {
  const side = Math.ceil(Math.sqrt(count));
  const on = unpackBits(code, count).map((bit, i) => (bit ? `M${i % side} ${Math.floor(i / side)}h.9v.9h-.9z` : "")).join("");
  return drawing("mosaic", `0 0 ${side} ${side}`, { on });
}

const bar = (x, y, height) => `M${x} ${y}h3.2v${height}h-3.2z`;

function describeDifference(differing, count) {
  if (differing.length === 0) return `All ${count} bits are the same`;
  const first = differing.slice(0, 16).join(", ");
  return `${differing.length} of ${count} bits differ: ${first}${differing.length > 16 ? " and more" : ""}`;
}

function drawing(name, viewBox, paths, label) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", name);
  svg.setAttribute("viewBox", viewBox);
  if (label === undefined) {
    svg.setAttribute("aria-hidden", "true");
  } else {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
  }
  for (const [kind, d] of Object.entries(paths)) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", kind);
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}
