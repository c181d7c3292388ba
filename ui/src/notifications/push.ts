/** Push messages to this browser: its subscription, which the server lists as an account of one person. */

import { deviceName } from "../people/words";
import { ApiError } from "../shared/api";
import { loadSetting, saveSetting } from "../shared/theme";
import { channels, type Channel } from "./api";

const KEY = "sayso.push";

/** The subscription that this browser made. */
interface Subscribed {
  person: string;
  account: string;
  endpoint: string;
}

function subscribed(): Subscribed | null {
  const text = loadSetting(KEY);
  return text === null ? null : (JSON.parse(text) as Subscribed);
}

/** The account of a person that is this browser, if there is one. */
export function ownAccount(person: string): string | null {
  const own = subscribed();
  return own?.person === person ? own.account : null;
}

/** Why this browser can get no push messages; empty if it can. */
export function whyNoPush(): string {
  if (!window.isSecureContext) return "Browsers get push messages only from pages with HTTPS. Open this page at its https:// address.";
  if (!("PushManager" in window && "Notification" in window)) {
    return "standalone" in navigator
      ? "On an iPhone or iPad, only the installed app gets push messages: choose Share, then Add to Home Screen, and open Sayso from there."
      : "This browser knows no push messages.";
  }
  if (Notification.permission === "denied") return "Notifications of this page are blocked. Allow them in the settings of this browser, then load the page again.";
  return "";
}

/** Let this browser get push messages for a person. Asks for their permission, so call it after a click. */
export async function turnOn(person: string, channel: Channel): Promise<void> {
  if ((await Notification.requestPermission()) !== "granted") {
    throw new ApiError(0, "NotAllowed", "This browser may show no notifications. Allow them, and try again.");
  }
  const { pushManager } = await registration();
  // There may be one of another person, or for an earlier key of the server.
  await (await pushManager.getSubscription())?.unsubscribe();
  const subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: channel.key }).catch((error: Error) => {
    throw new ApiError(0, "Refused", `This browser could not subscribe: ${error.message}`);
  });
  try {
    const account = await channels.subscribe(channel.name, deviceName(navigator.userAgent), subscription);
    saveSetting(KEY, JSON.stringify({ person, account: account.id, endpoint: subscription.endpoint }));
  } catch (error) {
    await subscription.unsubscribe();
    throw error;
  }
}

/** End the subscription of this browser, also at the server if its person is signed in. */
export async function turnOff(): Promise<void> {
  const own = subscribed();
  if (!own) return;
  saveSetting(KEY, null);
  const { pushManager } = await registration();
  await (await pushManager.getSubscription())?.unsubscribe();
  await channels.unlink("push", own.account);
}

/**
 * Subscribe again if the browser or the server has changed its part since. A subscription that was removed on
 * another device, or that another person made here, ends.
 */
export async function keepSubscribed(person: string): Promise<void> {
  const own = subscribed();
  if (!own || whyNoPush()) return;
  const channel = (await channels.list()).items.find(({ name }) => name === "push");
  if (!channel) return;
  const subscription = await (await registration()).pushManager.getSubscription();
  const key = subscription && encoded(subscription.options.applicationServerKey);
  const unchanged = subscription?.endpoint === own.endpoint && key === channel.key;
  const listed = channel.accounts.some(({ id }) => id === own.account);
  if (own.person === person && unchanged && listed) return;
  await turnOff().catch(() => undefined);
  if (own.person === person && !unchanged) await turnOn(person, channel);
}

async function registration(): Promise<ServiceWorkerRegistration> {
  await navigator.serviceWorker.register("/service-worker.js");
  return navigator.serviceWorker.ready;
}

function encoded(key: ArrayBuffer | null): string {
  const bytes = String.fromCharCode(...new Uint8Array(key ?? []));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
