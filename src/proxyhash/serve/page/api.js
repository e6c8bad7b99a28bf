// How the page asks the service: every failure is an Error whose message is a sentence for people.

const PATIENCE = 20; // times that a service which is busy or still starting is asked again

export async function ask(path, { body, json, signal, waiting = () => {} } = {}) {
  const request = { signal };
  if (json !== undefined) {
    Object.assign(request, { method: "POST", body: JSON.stringify(json), headers: { "Content-Type": "application/json" } });
  } else if (body !== undefined) {
    const kind = body.type.startsWith("image/") ? body.type : "application/octet-stream";
    Object.assign(request, { method: "POST", body, headers: { "Content-Type": kind } });
  }
  for (let tries = 0; ; tries += 1) {
    const response = await fetch(path, request).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Error("The service cannot be reached. Is it still running?");
    });
    const answer = await response.json().catch(() => ({ error: `The service answered with status ${response.status}.` }));
    if (response.ok) return answer;
    const seconds = Number(response.headers.get("Retry-After"));
    if (!seconds || tries >= PATIENCE) throw new Error(answer.error);
    waiting(answer.error);
    await pause(1000 * seconds, signal);
  }
}

export function pictureOf(key, side) {
  return `/api/image?${new URLSearchParams({ key, side })}`;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(new DOMException("", "AbortError")); });
  });
}
