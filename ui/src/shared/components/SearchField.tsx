import { useEffect, useState, type ReactElement } from "react";
import { setQuery, useQuery } from "../router";

/** A search field whose words are `q` in the address of the page. */
export function SearchField({ label, placeholder }: { label: string; placeholder: string }): ReactElement {
  const [query] = useQuery();
  const current = query.get("q") ?? "";
  const [text, setText] = useState(current);
  useEffect(() => setText((old) => (old.trim() === current ? old : current)), [current]);
  useEffect(() => {
    if (text.trim() === current) return;
    const timer = setTimeout(() => setQuery({ q: text.trim() || null }), 300);
    return () => clearTimeout(timer);
  }, [text, current]);
  return (
    <input
      type="search"
      aria-label={label}
      placeholder={placeholder}
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}
