// promptfoo: `promptfoo eval` with providers that have the address of the server.

import assert from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const { KEY, MODEL, SCRIPTED, SMOLLM2, feature, main } = await import(
  `${process.env.HARNESS}/features.mjs`
);

const HERE = dirname(fileURLToPath(import.meta.url));
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
const schema = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};

// The answer of one prompt.
function evaluate(kind, address, prompt, config) {
  const folder = mkdtempSync(resolve("promptfoo-"));
  const provider = {
    id: `openai:${kind}:${MODEL}`,
    config: { apiBaseUrl: `${address}/v1`, apiKey: KEY, ...config },
  };
  const told = { prompts: [prompt], providers: [provider] };
  writeFileSync(join(folder, "config.json"), JSON.stringify(told));
  const words = ["eval", "--no-cache", "--no-table", "-c", "config.json", "-o", "out.json"];
  const { stdout, stderr } = spawnSync(join(HERE, "node_modules/.bin/promptfoo"), words, {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, PROMPTFOO_CONFIG_DIR: folder },
  });
  console.error(stdout, stderr);
  const [result] = JSON.parse(readFileSync(join(folder, "out.json"))).results.results;
  assert(result.success, result.error);
  return result.response.output;
}

feature("openai:chat", () => {
  assert(evaluate("chat", SMOLLM2, "Say hello.", { max_tokens: 8 }));
});

feature("openai:completion", () => {
  assert(evaluate("completion", SMOLLM2, "The sky is", { max_tokens: 8 }));
});

feature("response_format", () => {
  const output = evaluate("chat", SCRIPTED, "Bob is 30.", {
    response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema } },
  });
  assert.deepEqual(output, { name: "Bob", age: 30 });
});

feature("tools", () => {
  const [call] = evaluate("chat", SCRIPTED, "What is the weather in Paris?", { tools });
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
});

feature("openai:responses", () => {
  assert(evaluate("responses", SMOLLM2, "Say hello.", { max_output_tokens: 16 }));
});

await main();
