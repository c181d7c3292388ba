import { useEffect, useSyncExternalStore, type ReactElement } from "react";
import { IconButton } from "./Button";
import { Icon } from "./Icon";

interface ToastItem {
  id: number;
  text: string;
  tone: "good" | "bad" | "info";
}

let items: ToastItem[] = [];
let counter = 0;
const watchers = new Set<() => void>();

function set(next: ToastItem[]): void {
  items = next;
  watchers.forEach((watch) => watch());
}

/** Show a message that disappears after a few seconds. */
export function toast(text: string, tone: ToastItem["tone"] = "info"): void {
  counter += 1;
  set([...items.slice(-2), { id: counter, text, tone }]);
}

function Toast({ item }: { item: ToastItem }): ReactElement {
  const close = () => set(items.filter((other) => other.id !== item.id));
  useEffect(() => {
    const timer = setTimeout(close, item.tone === "bad" ? 9_000 : 4_500);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className={`toast toast-${item.tone}`}>
      <Icon name={item.tone === "bad" ? "warning" : item.tone === "good" ? "check" : "medium"} />
      <span>{item.text}</span>
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
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((item) => (
        <Toast key={item.id} item={item} />
      ))}
    </div>
  );
}
