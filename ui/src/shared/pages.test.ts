import { expect, it } from "vitest";
import { merged } from "./pages";

const id = (item: { id: string }) => item.id;

it("what is read again replaces its older self and keeps the newer order", () => {
  const fresh = [{ id: "c" }, { id: "b", seen: 2 }];
  const held = [{ id: "b", seen: 1 }, { id: "a" }];
  expect(merged(fresh, held, id)).toEqual([{ id: "c" }, { id: "b", seen: 2 }, { id: "a" }]);
});

it("nothing new changes nothing", () => {
  const held = [{ id: "a" }];
  expect(merged([], held, id)).toEqual(held);
});
