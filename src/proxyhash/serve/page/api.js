// Requests to the service. Each failure is an Error whose message is one sentence for the user, and whose `field` names
// what is wrong in the request, if that is known.

const MAX_RETRIES = 20; // while the service is busy or starting

export const getInfo = () => request("api/v1/info");

// Return random items; with a filter, those nearest to one of them for which it is true.
export async function getSamples(count, where = "", options = {}) {
  const { items } = await request(`api/v1/items?${new URLSearchParams({ sample: where ? 1 : count })}`, options);
  if (!where || items.length === 0) return items;
  return (await searchIndex({ key: items[0].key, where }, count, options)).matches;
}

// A query has one of `file`, `vector`, `key` and `code`, and may have a `label` and a filter `where`.
export function searchIndex({ file, vector, key, code, label, where }, k, options) {
  const labels = label ? [label] : [];
  const query = vector ? { vector } : key ? { key } : { code };
  const filter = where ? { where } : {};
  if (!file) return request("api/v1/search", { json: { ...query, k, labels, ...filter }, ...options });
  const parameters = new URLSearchParams([["k", k], ...labels.map((one) => ["labels", one]), ...Object.entries(filter)]);
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
    if (!seconds || retries >= MAX_RETRIES) throw Object.assign(new Error(message), { field: content.field });
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
