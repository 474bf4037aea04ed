// Vercel's AI SDK: with @ai-sdk/openai-compatible, and with @ai-sdk/openai, which asks for responses.

import assert from "node:assert";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { KEY, MODEL, SCRIPTED, SMOLLM2, feature, main } = await import(
  `${process.env.HARNESS}/features.mjs`
);

const compatible = (url) =>
  createOpenAICompatible({ name: "local", baseURL: `${url}/v1`, includeUsage: true });
const smollm2 = compatible(SMOLLM2);
const scripted = compatible(SCRIPTED)(MODEL);
const hello = { prompt: "Say hello.", maxOutputTokens: 16 };
const schema = z.object({ name: z.string(), age: z.number().int() });
const get_weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `22 degrees in ${city}`,
});
const weather = { prompt: "What is the weather in Paris?", tools: { get_weather } };

feature("generateText", async () => {
  const { text, usage } = await generateText({ model: smollm2(MODEL), ...hello });
  assert(text);
  assert(usage.outputTokens <= 16);
});

feature("streamText", async () => {
  const { textStream, usage } = streamText({ model: smollm2(MODEL), ...hello });
  let text = "";
  for await (const piece of textStream) text += piece;
  assert(text);
  assert((await usage).outputTokens <= 16);
});

feature("completionModel", async () => {
  const { text } = await generateText({ model: smollm2.completionModel(MODEL), ...hello });
  assert(text);
});

feature("generateObject", async () => {
  const { object } = await generateObject({ model: scripted, schema, prompt: "Bob is 30." });
  assert.deepEqual(object, { name: "Bob", age: 30 });
});

feature("Output.object", async () => {
  const { output } = await generateText({
    model: scripted,
    prompt: "Bob is 30.",
    output: Output.object({ schema }),
  });
  assert.deepEqual(output, { name: "Bob", age: 30 });
});

feature("tools", async () => {
  const { text, steps } = await generateText({
    model: scripted,
    ...weather,
    stopWhen: stepCountIs(3),
  });
  assert.equal(steps[0].toolResults[0].output, "22 degrees in Paris");
  assert.equal(text, "It is 22 degrees in Paris.");
});

feature("toolChoice required", async () => {
  const { toolCalls } = await generateText({ model: scripted, ...weather, toolChoice: "required" });
  assert.deepEqual(toolCalls[0].input, { city: "Paris" });
});

feature("tools, streamed", async () => {
  const { fullStream, toolCalls } = streamText({ model: scripted, ...weather });
  const kinds = new Set();
  for await (const part of fullStream) kinds.add(part.type);
  assert.deepEqual((await toolCalls)[0].input, { city: "Paris" });
  assert(kinds.has("tool-input-start") && kinds.has("tool-input-delta"), [...kinds].join());
});

// @ai-sdk/openai

const openai = createOpenAI({ baseURL: `${SMOLLM2}/v1`, apiKey: KEY });
const scriptedOpenAI = createOpenAI({ baseURL: `${SCRIPTED}/v1`, apiKey: KEY })(MODEL);

feature("openai.chat", async () => {
  const { text } = await generateText({ model: openai.chat(MODEL), ...hello });
  assert(text);
});

feature("openai: generateText", async () => {
  const { text, usage } = await generateText({ model: openai(MODEL), ...hello });
  assert(text);
  assert(usage.outputTokens <= 16);
});

feature("openai: streamText", async () => {
  const { textStream } = streamText({ model: openai(MODEL), ...hello });
  let text = "";
  for await (const piece of textStream) text += piece;
  assert(text);
});

feature("openai: generateObject", async () => {
  const { object } = await generateObject({
    model: scriptedOpenAI,
    schema,
    prompt: "Bob is 30.",
  });
  assert.deepEqual(object, { name: "Bob", age: 30 });
});

feature("openai: tools", async () => {
  const { text, steps } = await generateText({
    model: scriptedOpenAI,
    ...weather,
    stopWhen: stepCountIs(3),
  });
  assert.equal(steps[0].toolResults[0].output, "22 degrees in Paris");
  assert.equal(text, "It is 22 degrees in Paris.");
});

feature("openai: tools, streamed", async () => {
  const { textStream } = streamText({
    model: scriptedOpenAI,
    ...weather,
    stopWhen: stepCountIs(3),
  });
  let text = "";
  for await (const piece of textStream) text += piece;
  assert.equal(text, "It is 22 degrees in Paris.");
});

await main();
