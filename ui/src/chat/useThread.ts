/**
 * One conversation: the AI SDK's chat client, extended. Decisions are also made elsewhere (the inbox, a
 * terminal), and the client does not hear of them. So when the live feed reports a change, the stored
 * messages are read again, and the stream is joined while an answer is being written. The only message
 * that the client sends automatically is a decision made in this chat, once.
 */

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, type UIMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { ApiError, api, call as read } from "../shared/api";
import { useChanges, useLive, type LiveEvent } from "../shared/live";
import type { DecisionBody, Request } from "../shared/types";
import { callsOf, isUnfinished, openCalls, rendersSame, type Call } from "./messageParts";
import { toChatReply } from "./chatReply";

const POLL_DELAYS = [1_500, 3_000, 6_000, 12_000, 30_000];
const POLL_WITHOUT_FEED = 4_000;

const chatRoute = (agent: string | null): string =>
  agent ? `/api/chat/${encodeURIComponent(agent)}` : "/api/chat";

export async function loadMessages(agent: string | null, id: string, signal?: AbortSignal): Promise<UIMessage[]> {
  const path = `${chatRoute(agent)}/${encodeURIComponent(id)}/messages`;
  return (await read<{ messages: UIMessage[] }>(path, { signal })).messages;
}

const userMessages = (messages: UIMessage[]): number => messages.filter((message) => message.role === "user").length;

export interface Thread {
  messages: UIMessage[];
  /** An answer is streaming or about to. */
  busy: boolean;
  sent: boolean;
  error: Error | undefined;
  /** The user stopped the display of the answer. The run continues. */
  stopped: boolean;
  open: Call[];
  send: (text: string) => void;
  stop: () => void;
  /** Read the stored messages and join the stream. */
  follow: () => void;
  decide: (call: Call, request: Request, decision: DecisionBody) => Promise<Request>;
  retry: () => void;
}

interface Start {
  agent: string | null;
  id: string;
  messages: UIMessage[];
  /** The chat exists on the server. */
  known: boolean;
}

export function useThread({ agent, id, messages: first, known }: Start): Thread {
  const transport = useMemo(
    () => new DefaultChatTransport<UIMessage>({ api: chatRoute(agent), headers: { "X-Sayso": "1" } }),
    [agent],
  );
  const sendDecision = useRef(false);
  const chat = useChat({
    id,
    messages: first,
    transport,
    resume: known,
    throttle: 40,
    sendAutomaticallyWhen: () => {
      const now = sendDecision.current;
      sendDecision.current = false;
      return now;
    },
  });
  const [stopped, setStopped] = useState(false);
  const busy = chat.status === "submitted" || chat.status === "streaming";
  const now = useRef({ chat, busy, stopped });
  now.current = { chat, busy, stopped };

  const missed = useRef(false);
  const refreshing = useRef(false);
  const tries = useRef(0);
  const refresh = useCallback(async (): Promise<void> => {
    if (now.current.stopped) return;
    if (refreshing.current || now.current.busy) {
      missed.current = true;
      return;
    }
    refreshing.current = true;
    missed.current = false;
    try {
      const held = await loadMessages(agent, id);
      if (now.current.busy || now.current.stopped) return;
      // A message that did not reach the server stays on the page, so that it can be sent again.
      if (userMessages(now.current.chat.messages) > userMessages(held)) return;
      if (!rendersSame(now.current.chat.messages, held)) now.current.chat.setMessages(held);
      if (isUnfinished(held)) await now.current.chat.resumeStream();
    } catch {
      // The connection status shows that the server is unreachable. The next change or timer tries again.
    } finally {
      refreshing.current = false;
    }
  }, [agent, id]);

  const began = useRef(known);
  const mine = (event: LiveEvent) =>
    !("thread" in event) || event.thread === id || event.thread.startsWith(`${id}/`);
  useChanges((events) => {
    if (!began.current || !events.some(mine)) return;
    tries.current = 0;
    // The feed was interrupted, so the stream may be dead without an error: leave it and join again.
    const doubtful = now.current.busy && events.some((event) => event.type === "resync");
    void (doubtful ? chat.stop().then(refresh) : refresh());
  });

  // Changes that arrived while an answer was streaming are read when it has ended.
  useEffect(() => {
    if (!busy && missed.current) void refresh();
  }, [busy, refresh]);

  // Poll if the feed is interrupted or the stream ended early.
  const feedIsLive = useLive().state === "live";
  const more = chat.status === "ready" && !stopped && began.current && isUnfinished(chat.messages);
  const watch = chat.status === "ready" && !stopped && !feedIsLive && openCalls(chat.messages).length > 0;
  useEffect(() => {
    if (!more && !watch) {
      tries.current = 0;
      return;
    }
    let timer: ReturnType<typeof setTimeout>;
    const next = () => {
      const wait = more ? POLL_DELAYS[Math.min(tries.current, POLL_DELAYS.length - 1)]! : POLL_WITHOUT_FEED;
      timer = setTimeout(() => {
        tries.current += 1;
        if (document.visibilityState === "visible") void refresh();
        next();
      }, wait);
    };
    next();
    return () => clearTimeout(timer);
  }, [more, watch, refresh]);

  // A hidden page holds no connection. The run continues, and the stream is joined again on return.
  useEffect(() => {
    const leave = () => {
      if (now.current.chat.status === "streaming") void now.current.chat.stop();
    };
    const turn = () => (document.visibilityState === "hidden" ? leave() : began.current && void refresh());
    document.addEventListener("visibilitychange", turn);
    window.addEventListener("pagehide", leave);
    return () => {
      document.removeEventListener("visibilitychange", turn);
      window.removeEventListener("pagehide", leave);
    };
  }, [refresh]);

  const send = (text: string) => {
    began.current = true;
    setStopped(false);
    now.current.stopped = false;
    chat.clearError();
    void chat.sendMessage({ text });
  };
  return {
    messages: chat.messages,
    busy,
    sent: chat.status === "submitted",
    error: chat.status === "error" ? chat.error : undefined,
    stopped,
    open: openCalls(chat.messages),
    send,
    stop: () => {
      setStopped(true);
      void chat.stop();
    },
    follow: () => {
      setStopped(false);
      now.current.stopped = false;
      tries.current = 0;
      void refresh();
    },
    decide,
    retry: () => void retry(),
  };

  async function decide(call: Call, request: Request, decision: DecisionBody): Promise<Request> {
    const reply = now.current.busy ? null : toChatReply(call, request, decision);
    if (!reply) {
      const result = await api.decide(request.id, decision);
      tries.current = 0;
      void refresh();
      return result;
    }
    sendDecision.current = true;
    if (reply.kind === "approval") {
      const { id: approval, approved, reason, body } = reply;
      await chat.addToolApprovalResponse({ id: approval, approved, reason, options: body && { body } });
    } else {
      const common = { tool: call.name, toolCallId: call.id } as const;
      if (reply.kind === "output") await chat.addToolOutput({ ...common, output: reply.output });
      else await chat.addToolOutput({ ...common, state: "output-error", errorText: reply.errorText });
    }
    return waitUntilRecorded(request);
  }

  /** Wait for a decision sent over the chat to be recorded. Polls, because the response takes as long as the agent does. */
  async function waitUntilRecorded(request: Request): Promise<Request> {
    for (let wait = 60; ; wait = Math.min(wait * 2, 1_000)) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      const over = !now.current.busy;
      const found = await api.request(request.id);
      if (found.status !== "pending" || found.votes.length > request.votes.length) return found;
      if (over) {
        const call = now.current.chat.messages.flatMap(callsOf).find((each) => each.id === request.id);
        throw new ApiError(409, "Conflict", call?.request?.problem ?? "Your decision was not recorded. Review the request again.");
      }
    }
  }

  /** Retry after an error. A message that reached the server is not sent again; its answer is continued or started. */
  async function retry(): Promise<void> {
    chat.clearError();
    const held = await loadMessages(agent, id).catch(() => []);
    const arrived = userMessages(held) >= userMessages(chat.messages);
    if (arrived) chat.setMessages(held);
    if (!arrived || isUnfinished(held)) void chat.regenerate();
  }
}
