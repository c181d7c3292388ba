/**
 * One conversation: the stock chat client, and what it lacks. Decisions are made elsewhere too (the
 * inbox, a terminal), and the client is not told of them. So the thread is followed: when something
 * changed, what the server holds is read again, and its stream is joined while an answer is being
 * written. By itself the client sends nothing but an answer that was given here, once.
 */

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, type UIMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { ApiError, api, call as read } from "../shared/api";
import { useChanges, useLive, type LiveEvent } from "../shared/live";
import type { DecisionBody, Request } from "../shared/types";
import { callsOf, same, unfinished, waiting, type Call } from "./parts";
import { wordsFor } from "./wire";

const PATIENCE = [1_500, 3_000, 6_000, 12_000, 30_000];
const WITHOUT_FEED = 4_000;

export const chatRoute = (agent: string | null): string =>
  agent ? `/api/chat/${encodeURIComponent(agent)}` : "/api/chat";

export async function stored(agent: string | null, id: string, signal?: AbortSignal): Promise<UIMessage[]> {
  const path = `${chatRoute(agent)}/${encodeURIComponent(id)}/messages`;
  return (await read<{ messages: UIMessage[] }>(path, { signal })).messages;
}

const spoken = (messages: UIMessage[]): number => messages.filter((message) => message.role === "user").length;

export interface Thread {
  messages: UIMessage[];
  /** An answer is being written, or about to be. */
  busy: boolean;
  sent: boolean;
  error: Error | undefined;
  /** The person does not want to see the rest; the run goes on without this page. */
  stopped: boolean;
  open: Call[];
  send: (text: string) => void;
  stop: () => void;
  /** Look at what the server holds, and join its stream. */
  follow: () => void;
  decide: (call: Call, request: Request, decision: DecisionBody) => Promise<Request>;
  retry: () => void;
}

interface Start {
  agent: string | null;
  id: string;
  messages: UIMessage[];
  /** The server knows this chat already. */
  known: boolean;
}

export function useThread({ agent, id, messages: first, known }: Start): Thread {
  const transport = useMemo(
    () => new DefaultChatTransport<UIMessage>({ api: chatRoute(agent), headers: { "X-Sayso": "1" } }),
    [agent],
  );
  const answered = useRef(false);
  const chat = useChat({
    id,
    messages: first,
    transport,
    resume: known,
    throttle: 40,
    sendAutomaticallyWhen: () => {
      const now = answered.current;
      answered.current = false;
      return now;
    },
  });
  const [stopped, setStopped] = useState(false);
  const busy = chat.status === "submitted" || chat.status === "streaming";
  const now = useRef({ chat, busy, stopped });
  now.current = { chat, busy, stopped };

  const missed = useRef(false);
  const looking = useRef(false);
  const tries = useRef(0);
  const look = useCallback(async (): Promise<void> => {
    if (now.current.stopped) return;
    if (looking.current || now.current.busy) {
      missed.current = true;
      return;
    }
    looking.current = true;
    missed.current = false;
    try {
      const held = await stored(agent, id);
      if (now.current.busy || now.current.stopped) return;
      // Words that did not arrive stay on the page, for the person to send again.
      if (spoken(now.current.chat.messages) > spoken(held)) return;
      if (!same(now.current.chat.messages, held)) now.current.chat.setMessages(held);
      if (unfinished(held)) await now.current.chat.resumeStream();
    } catch {
      // The feed's dot says that the server is away; the next change or tick looks again.
    } finally {
      looking.current = false;
    }
  }, [agent, id]);

  const began = useRef(known);
  const mine = (event: LiveEvent) =>
    !("thread" in event) || event.thread === id || event.thread.startsWith(`${id}/`);
  useChanges((events) => {
    if (!began.current || !events.some(mine)) return;
    tries.current = 0;
    // The feed was away, so our stream may be dead without a word: it is left, and joined again.
    const doubtful = now.current.busy && events.some((event) => event.type === "resync");
    void (doubtful ? chat.stop().then(look) : look());
  });

  // What changed while an answer was streamed is looked at when it has ended.
  useEffect(() => {
    if (!busy && missed.current) void look();
  }, [busy, look]);

  // Nothing is lost with a feed that is away, or a stream that ended too early: look now and then.
  const fed = useLive().state === "live";
  const more = chat.status === "ready" && !stopped && began.current && unfinished(chat.messages);
  const watch = chat.status === "ready" && !stopped && !fed && waiting(chat.messages).length > 0;
  useEffect(() => {
    if (!more && !watch) {
      tries.current = 0;
      return;
    }
    let timer: ReturnType<typeof setTimeout>;
    const next = () => {
      const wait = more ? PATIENCE[Math.min(tries.current, PATIENCE.length - 1)]! : WITHOUT_FEED;
      timer = setTimeout(() => {
        tries.current += 1;
        if (document.visibilityState === "visible") void look();
        next();
      }, wait);
    };
    next();
    return () => clearTimeout(timer);
  }, [more, watch, look]);

  // A page that nobody looks at holds no connection: the run continues, and its stream is joined on return.
  useEffect(() => {
    const leave = () => {
      if (now.current.chat.status === "streaming") void now.current.chat.stop();
    };
    const turn = () => (document.visibilityState === "hidden" ? leave() : began.current && void look());
    document.addEventListener("visibilitychange", turn);
    window.addEventListener("pagehide", leave);
    return () => {
      document.removeEventListener("visibilitychange", turn);
      window.removeEventListener("pagehide", leave);
    };
  }, [look]);

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
    open: waiting(chat.messages),
    send,
    stop: () => {
      setStopped(true);
      void chat.stop();
    },
    follow: () => {
      setStopped(false);
      now.current.stopped = false;
      tries.current = 0;
      void look();
    },
    decide,
    retry: () => void again(),
  };

  async function decide(call: Call, request: Request, decision: DecisionBody): Promise<Request> {
    const words = now.current.busy ? null : wordsFor(call, request, decision);
    if (!words) {
      const result = await api.decide(request.id, decision);
      tries.current = 0;
      void look();
      return result;
    }
    answered.current = true;
    if (words.say === "approval") {
      const { id: card, approved, reason, body } = words;
      await chat.addToolApprovalResponse({ id: card, approved, reason, options: body && { body } });
    } else {
      const common = { tool: call.name, toolCallId: call.id } as const;
      if (words.say === "output") await chat.addToolOutput({ ...common, output: words.output });
      else await chat.addToolOutput({ ...common, state: "output-error", errorText: words.errorText });
    }
    return outcome(request);
  }

  /** What became of an answer that went over the chat: its response may take as long as the agent does. */
  async function outcome(request: Request): Promise<Request> {
    for (let wait = 60; ; wait = Math.min(wait * 2, 1_000)) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      const over = !now.current.busy;
      const found = await api.request(request.id);
      if (found.status !== "pending" || found.votes.length > request.votes.length) return found;
      if (over) {
        const call = now.current.chat.messages.flatMap(callsOf).find((each) => each.id === request.id);
        throw new ApiError(409, "Conflict", call?.card?.problem ?? "Your answer was not recorded. Look at it again.");
      }
    }
  }

  /** Try again. What has arrived is not said twice: the server tells the answer that it has, or begins one. */
  async function again(): Promise<void> {
    chat.clearError();
    const held = await stored(agent, id).catch(() => []);
    const arrived = spoken(held) >= spoken(chat.messages);
    if (arrived) chat.setMessages(held);
    if (!arrived || unfinished(held)) void chat.regenerate();
  }
}
