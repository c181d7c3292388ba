/** A minimal router on top of the History API. */

import { createElement, useMemo, useSyncExternalStore } from "react";
import type { AnchorHTMLAttributes, MouseEvent, ReactElement, Ref } from "react";

const watchers = new Set<() => void>();
const notify = () => watchers.forEach((watch) => watch());

if (typeof window !== "undefined") window.addEventListener("popstate", notify);

export function navigate(to: string, options: { replace?: boolean } = {}): void {
  const here = location.pathname + location.search + location.hash;
  if (to === here) return;
  if (options.replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  notify();
}

function watch(callback: () => void): () => void {
  watchers.add(callback);
  return () => watchers.delete(callback);
}

export function usePath(): string {
  return useSyncExternalStore(watch, () => location.pathname);
}

/** The query string, and a function that sets some of its keys (null removes one). */
export function useQuery(): [URLSearchParams, (changes: Record<string, string | null>, replace?: boolean) => void] {
  const search = useSyncExternalStore(watch, () => location.search);
  const params = useMemo(() => new URLSearchParams(search), [search]);
  return [params, setQuery];
}

export function setQuery(changes: Record<string, string | null>, replace = true): void {
  const params = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") params.delete(key);
    else params.set(key, value);
  }
  const text = params.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), { replace });
}

type LinkProps = AnchorHTMLAttributes<HTMLAnchorElement> & { to: string; ref?: Ref<HTMLAnchorElement> };

/** A link that navigates without a page load. Modified clicks are left to the browser. */
export function Link({ to, onClick, ...rest }: LinkProps): ReactElement {
  return createElement("a", {
    ...rest,
    href: to,
    onClick: (event: MouseEvent<HTMLAnchorElement>) => {
      onClick?.(event);
      const modified = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button !== 0;
      if (event.defaultPrevented || modified) return;
      event.preventDefault();
      navigate(to);
    },
  });
}
