// Codes as pictures. Bit i of a code is bit i % 8 of byte i // 8; two hexadecimal digits are a byte.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 64; // bits in a line of a strip
const TALL = 12; // of a line, where a bit is 4 wide

export function bitsOf(code, count) {
  return Array.from({ length: count }, (_, i) => (parseInt(code.substr(2 * (i >> 3), 2), 16) >> (i & 7)) & 1);
}

// A strip: bits that are on and off, and taller, in another color, those that differ from another code.
export function strip(code, count, other, tall = TALL) {
  const own = bitsOf(code, count);
  const theirs = other === undefined ? own : bitsOf(other, count);
  const paths = { off: "", on: "", differs: "" };
  own.forEach((bit, i) => {
    const differs = bit !== theirs[i];
    const x = 4 * (i % ROW) + 0.4;
    const y = (tall + 1) * Math.floor(i / ROW);
    paths[differs ? "differs" : bit ? "on" : "off"] += differs ? bar(x, y, tall) : bar(x, y + tall / 5, 0.6 * tall);
  });
  const apart = own.flatMap((bit, i) => (bit === theirs[i] ? [] : [i + 1]));
  const label = other === undefined ? `Code of ${count} bits: ${own.join("")}` : differences(apart, count);
  return drawing("strip", `0 0 ${4 * Math.min(count, ROW)} ${(tall + 1) * Math.ceil(count / ROW) - 1}`, paths, label);
}

// A square of bits: what stands for an item that has no picture.
export function mosaic(code, count) {
  const side = Math.ceil(Math.sqrt(count));
  const on = bitsOf(code, count).map((bit, i) => (bit ? `M${i % side} ${Math.floor(i / side)}h.9v.9h-.9z` : "")).join("");
  return drawing("mosaic", `0 0 ${side} ${side}`, { on });
}

const bar = (x, y, height) => `M${x} ${y}h3.2v${height}h-3.2z`;

function differences(apart, count) {
  if (apart.length === 0) return `All ${count} bits are the same`;
  const some = apart.slice(0, 16).join(", ");
  return `${apart.length} of ${count} bits differ: ${some}${apart.length > 16 ? " and more" : ""}`;
}

function drawing(name, box, paths, label) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", name);
  svg.setAttribute("viewBox", box);
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
