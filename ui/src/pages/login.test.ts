import { expect, it } from "vitest";
import { safeNext } from "./LoginPage";

it.each([
  ["/inbox/req_1?q=x", "/inbox/req_1?q=x"],
  [null, "/inbox"],
  ["https://elsewhere.example/", "/inbox"],
  ["//elsewhere.example", "/inbox"],
  ["/\\elsewhere.example", "/inbox"],
  ["/login?next=/x", "/inbox"],
])("after sign-in %j leads to %s", (next, wanted) => expect(safeNext(next)).toBe(wanted));
