import { expect, it } from "vitest";
import type { Credential } from "./api";
import { accountOf, commaSeparated, countCredentials, deviceName, issuerHost } from "./words";

it("a browser is named with its system", () => {
  const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36";
  expect(deviceName(chrome)).toBe("Chrome on Linux");
  expect(deviceName(`${chrome} Edg/141.0`)).toBe("Edge on Linux");
  const phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605 Version/19.0 Mobile/15E148 Safari/604.1";
  expect(deviceName(phone)).toBe("Safari on iPhone");
  expect(deviceName("python-httpx/0.28")).toBe("python-httpx/0.28");
  expect(deviceName("")).toBe("Unknown device");
});

it("a provider's account is read from its origin", () => {
  expect(accountOf("local")).toBeNull();
  expect(accountOf('["https://login.example.com/t/1","00u1"]')).toEqual({
    issuer: "https://login.example.com/t/1",
    subject: "00u1",
  });
  expect(accountOf("broken")).toEqual({ issuer: "broken", subject: "" });
  expect(issuerHost("https://login.example.com/t/1")).toBe("login.example.com");
});

it("credentials are counted by kind", () => {
  const credentials = ["token", "session", "session", "passkey"].map((kind) => ({ kind }) as Credential);
  expect(countCredentials(credentials)).toBe("2 sessions, 1 token and 1 passkey");
  expect(countCredentials([])).toBe("");
});

it("groups are separated by commas", () => {
  expect(commaSeparated(" finance, ,ops ")).toEqual(["finance", "ops"]);
});
