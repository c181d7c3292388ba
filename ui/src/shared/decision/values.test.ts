import { expect, it } from "vitest";
import { humanName } from "./values";

it("writes a tool's name in words, as the server begins a title", () => {
  expect(["getWeatherInformation", "send_email", "HTTPGet", "fin.pay", "mcp__crm__update-contact", "__", "größe_ändern"].map(humanName)).toEqual([
    "Get weather information",
    "Send email",
    "HTTP get",
    "Fin pay",
    "Mcp crm update contact",
    "__",
    "Größe ändern",
  ]);
});
