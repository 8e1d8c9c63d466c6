// Lets the page open without a network next time. A window that cannot (no service workers, no room) is as it was.
//
// Input: a page that has loaded. Output: sw.js at work, with a copy of what the page is made of.

/** Start sw.js and name to it the files that this page has loaded. */
export async function keepPage() {
  if (!navigator.serviceWorker) return;
  try {
    await navigator.serviceWorker.register("sw.js");
    const { active } = await navigator.serviceWorker.ready;
    const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => (document.documentElement.dataset.offline = "ready");
    const keep = loaded.filter((url) => /\.(m?js|css|svg)$/.test(new URL(url).pathname));
    active?.postMessage({ keep }, [port2]);
  } catch (error) {
    console.info(`the page will not open without a network: ${error}`);
  }
}
