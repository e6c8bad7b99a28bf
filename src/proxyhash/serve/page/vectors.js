// Vectors of a user: numbers as text or JSON, and .npy files. Each failure is an Error with one sentence.

const MAGIC = "NUMPY"; // after the first byte of a .npy file
const READERS = {
  "<f2": [2, readHalf],
  "<f4": [4, (view, at) => view.getFloat32(at, true)],
  "<f8": [8, (view, at) => view.getFloat64(at, true)],
};

// Return the first vector of a text: a JSON list, or numbers with commas or spaces between them, one vector per line.
export function parseVector(text) {
  const trimmed = text.trim();
  const vector = trimmed.startsWith("[") ? parseJson(trimmed) : trimmed.split("\n")[0].split(/[\s,;]+/).filter(Boolean).map(Number);
  if (!Array.isArray(vector) || vector.length === 0 || !vector.every(Number.isFinite)) {
    throw new Error("This is not a vector. Give numbers with commas or spaces between them, such as 0.12, -0.5, 0.33.");
  }
  return vector;
}

// Return the first vector of a file.
export async function readVector(file) {
  const buffer = await file.arrayBuffer();
  return ascii(buffer, 1, 5) === MAGIC ? parseNpy(buffer, file.name) : parseVector(new TextDecoder().decode(buffer));
}

function parseNpy(buffer, name) {
  const tooShort = () => new Error(`${name} ends too early; copy it again.`);
  if (buffer.byteLength < 12) throw tooShort();
  const view = new DataView(buffer);
  const isVersion1 = view.getUint8(6) === 1; // its header has a length of two bytes
  const length = isVersion1 ? view.getUint16(8, true) : view.getUint32(8, true);
  const start = (isVersion1 ? 10 : 12) + length;
  const header = ascii(buffer, start - length, length);
  const reader = READERS[/'descr': '([^']*)'/.exec(header)?.[1]];
  const shape = /'shape': \(([\d, ]*)\)/.exec(header)?.[1].split(",").filter((part) => part.trim()).map(Number) ?? [];
  if (!reader || shape.length < 1 || shape.length > 2 || shape.includes(0) || header.includes("'fortran_order': True")) {
    throw new Error(`${name} must hold a vector, or a matrix with a vector in each row, of float16, float32 or float64.`);
  }
  const [size, read] = reader;
  const width = shape.at(-1);
  if (start + size * width > buffer.byteLength) throw tooShort();
  return Array.from({ length: width }, (_, i) => read(view, start + size * i));
}

function readHalf(view, at) {
  const bits = view.getUint16(at, true);
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  const sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
}

function parseJson(text) {
  try {
    const values = JSON.parse(text);
    return Array.isArray(values[0]) ? values[0] : values;
  } catch {
    return null;
  }
}

const ascii = (buffer, start, length) => new TextDecoder().decode(buffer.slice(start, start + length));
