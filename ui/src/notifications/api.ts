/** Channels and when they reach you: the API for your own accounts, and for admins. */

import { call } from "../shared/api";
import type * as api from "../shared/apiTypes";

export type Channel = api.OwnChannel;
export type Account = api.LinkedAccount;
export type ChannelHealth = api.ChannelHealth;
export type LinkCode = api.LinkCode;
export type TestMessage = api.TestMessage;
export type Notices = api.Notices;

const at = (channel: string, what = "") => `/api/me/channels/${encodeURIComponent(channel)}${what}`;
const post = <T>(path: string, body: unknown = {}) => call<T>(path, { method: "POST", body });

export const channels = {
  list: (signal?: AbortSignal) => call<{ items: Channel[] }>("/api/me/channels", { signal }),
  link: (channel: string) => post<LinkCode>(at(channel, "/link")),
  confirm: (channel: string, code: string) => post<void>(at(channel, "/confirm"), { code }),
  subscribe: (channel: string, device: string, subscription: PushSubscription) => {
    const { endpoint, keys } = subscription.toJSON();
    return post<Account>(at(channel, "/accounts"), { device, endpoint, keys });
  },
  unlink: (channel: string, account: string) =>
    call<void>(at(channel, `/accounts/${encodeURIComponent(account)}`), { method: "DELETE" }),
  test: (channel: string) => post<TestMessage>(at(channel, "/test")),
  health: (signal?: AbortSignal) => call<{ items: ChannelHealth[] }>("/api/channels", { signal }),
};

export const notices = {
  get: (signal?: AbortSignal) => call<Notices>("/api/me/notices", { signal }),
  set: (changed: Omit<Notices, "quiet_until_now">) => call<Notices>("/api/me/notices", { method: "PUT", body: changed }),
};
