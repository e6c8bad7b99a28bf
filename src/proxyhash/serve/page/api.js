// Requests to the service. Each failure is an Error whose message is one sentence for the user.

const MAX_RETRIES = 20; // while the service is busy or starting

export const getInfo = () => request("api/v1/info");

export async function getSamples(count) {
  const { items } = await request(`api/v1/items?${new URLSearchParams({ sample: count })}`);
  return items;
}

// A query has one of `file`, `vector`, `key` and `code`, and may have a `label`.
export function searchIndex({ file, vector, key, code, label }, k, options) {
  const labels = label ? [label] : [];
  const query = vector ? { vector } : key ? { key } : { code };
  if (!file) return request("api/v1/search", { json: { ...query, k, labels }, ...options });
  const parameters = new URLSearchParams([["k", k], ...labels.map((one) => ["labels", one])]);
  return request(`api/v1/search?${parameters}`, { body: file, ...options });
}

export function thumbnailUrl(key, size) {
  const path = key.split("/").map((segment) => encodeURIComponent(segment.toWellFormed())).join("/");
  return `api/v1/thumbnails/${path}?${new URLSearchParams({ size })}`;
}

async function request(url, { body, json, signal, onRetry = () => {} } = {}) {
  const init = { signal };
  if (json !== undefined) {
    Object.assign(init, { method: "POST", body: JSON.stringify(json), headers: { "Content-Type": "application/json" } });
  } else if (body !== undefined) {
    const type = body.type.startsWith("image/") ? body.type : "application/octet-stream";
    Object.assign(init, { method: "POST", body, headers: { "Content-Type": type } });
  }
  for (let retries = 0; ; retries += 1) {
    const response = await fetch(url, init).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Error("The service cannot be reached. Is it still running?");
    });
    const content = await response.json().catch(() => ({}));
    if (response.ok) return content;
    const message = content.detail ?? `The service answered with status ${response.status}.`;
    const seconds = Number(response.headers.get("Retry-After"));
    if (!seconds || retries >= MAX_RETRIES) throw new Error(message);
    onRetry(message);
    await wait(1000 * seconds, signal);
  }
}

function wait(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(new DOMException("", "AbortError")); });
  });
}
