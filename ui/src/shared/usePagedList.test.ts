import { expect, it } from "vitest";
import { mergeById } from "./usePagedList";

const id = (item: { id: string }) => item.id;

it("reloaded items replace the old ones and come first", () => {
  const fresh = [{ id: "c" }, { id: "b", seen: 2 }];
  const held = [{ id: "b", seen: 1 }, { id: "a" }];
  expect(mergeById(fresh, held, id)).toEqual([{ id: "c" }, { id: "b", seen: 2 }, { id: "a" }]);
});

it("an empty page changes nothing", () => {
  const held = [{ id: "a" }];
  expect(mergeById([], held, id)).toEqual(held);
});
