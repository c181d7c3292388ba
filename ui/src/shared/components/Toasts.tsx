import { useEffect, useRef, useSyncExternalStore, type ReactElement } from "react";
import { Button, IconButton } from "./Button";
import { Icon } from "./Icon";

interface ToastAction {
  label: string;
  shortcut: string;
  run: () => void;
}

interface ToastItem {
  id: number;
  text: string;
  tone: "good" | "bad" | "info";
  action?: ToastAction;
  ms: number;
}

let items: ToastItem[] = [];
let counter = 0;
const watchers = new Set<() => void>();

function set(next: ToastItem[]): void {
  items = next;
  watchers.forEach((watch) => watch());
}

/** Show a message that disappears after a few seconds. Returns its number, to close it before. */
export function toast(
  text: string,
  tone: ToastItem["tone"] = "info",
  action?: ToastAction,
  ms = tone === "bad" ? 9_000 : 4_500,
): number {
  counter += 1;
  set([...items.slice(-2), { id: counter, text, tone, action, ms }]);
  return counter;
}

export function closeToast(id: number): void {
  set(items.filter((item) => item.id !== id));
}

function Toast({ item }: { item: ToastItem }): ReactElement {
  const close = () => closeToast(item.id);
  useEffect(() => {
    const timer = setTimeout(close, item.ms);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className={`toast toast-${item.tone}`}>
      <Icon name={item.tone === "bad" ? "warning" : item.tone === "good" ? "check" : "medium"} />
      <span>{item.text}</span>
      {item.action && (
        <Button small shortcut={item.action.shortcut} onClick={item.action.run}>
          {item.action.label}
        </Button>
      )}
      <IconButton label="Dismiss" icon="cross" onClick={close} />
    </div>
  );
}

export function Toasts(): ReactElement {
  const shown = useSyncExternalStore(
    (watch) => {
      watchers.add(watch);
      return () => watchers.delete(watch);
    },
    () => items,
  );
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // Room for the toasts: the list beside them ends above, so they cover none of its rows.
    const observer = new ResizeObserver(([entry]) => {
      document.documentElement.style.setProperty("--toasts", `${Math.ceil(entry!.contentRect.height)}px`);
    });
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  return (
    <div className="toasts" role="status" aria-live="polite" ref={box}>
      {shown.map((item) => (
        <Toast key={item.id} item={item} />
      ))}
    </div>
  );
}
