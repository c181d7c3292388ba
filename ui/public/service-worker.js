// Shows push messages. A notification opens its request and decides nothing; nothing is cached, so that a page is
// always what the server says now.

const INBOX = "/inbox";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

// A message about a request replaces the notification that is shown about it. Only open requests make a sound.
self.addEventListener("push", (event) => {
  const { title, body, url, tag, over } = noticeIn(event.data);
  event.waitUntil(
    self.registration.showNotification(title, {
      body,
      tag,
      data: { url },
      icon: "/assets/icon-192.png",
      badge: "/assets/badge.png",
      renotify: !over,
      silent: over,
    }),
  );
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data?.url ?? INBOX));
});

/** Return the parts of a message. Browsers demand a notification for each, also for one that cannot be read. */
function noticeIn(data) {
  try {
    const { title, body = "", url, tag, over = false } = data.json();
    if (title && tag) return { title: String(title), body: String(body), url: pageAt(url), tag: String(tag), over: over === true };
  } catch {
    // Not from this version of the server.
  }
  return { title: "Sayso", body: "Open your inbox to see what waits for you.", url: INBOX, tag: "sayso", over: false };
}

/** Return the path of a page of this server. */
function pageAt(url) {
  const page = new URL(url, self.location.origin);
  return page.origin === self.location.origin ? page.pathname : INBOX;
}

/** Show a page: in a window that shows it already, or in a new one, because others may have unsaved text. */
async function open(path) {
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const existing = windows.find((window) => new URL(window.url).pathname === path);
  if (existing) await existing.focus();
  else await self.clients.openWindow(path);
}
