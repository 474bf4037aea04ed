// The openai package of npm.

import assert from "node:assert";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { KEY, MODEL, SCRIPTED, SMOLLM2, feature, main } = await import(
  `${process.env.HARNESS}/features.mjs`
);

const smollm2 = new OpenAI({ baseURL: `${SMOLLM2}/v1`, apiKey: KEY });
const scripted = new OpenAI({ baseURL: `${SCRIPTED}/v1`, apiKey: KEY });
const hello = { model: MODEL, messages: [{ role: "user", content: "Say hello." }], max_tokens: 8 };
const bob = { model: MODEL, messages: [{ role: "user", content: "Bob is 30." }] };
const weather = {
  model: MODEL,
  messages: [{ role: "user", content: "What is the weather in Paris?" }],
};
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
};
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
const Person = z.object({ name: z.string(), age: z.number().int() });

feature("chat", async () => {
  const answer = await smollm2.chat.completions.create(hello);
  assert(answer.choices[0].message.content);
  assert(answer.usage.completion_tokens <= 8);
});

feature("stream with usage", async () => {
  const stream = await smollm2.chat.completions.create({
    ...hello,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert(text);
  assert(usage.completion_tokens <= 8);
});

feature(".stream() helper", async () => {
  const stream = smollm2.chat.completions.stream(hello);
  let text = "";
  stream.on("content", (piece) => (text += piece));
  const answer = await stream.finalChatCompletion();
  assert.equal(answer.choices[0].message.content, text);
});

feature("abort", async () => {
  const stream = await smollm2.chat.completions.create({
    ...hello,
    max_tokens: 200,
    stream: true,
  });
  let pieces = 0;
  for await (const _ of stream) {
    pieces += 1;
    if (pieces === 3) stream.controller.abort();
  }
  assert(pieces < 100);
});

feature("completions", async () => {
  const request = { model: MODEL, prompt: "The sky is", max_tokens: 8 };
  const answer = await smollm2.completions.create(request);
  assert(answer.choices[0].text);
});

feature("parse with zod", async () => {
  const answer = await scripted.chat.completions.parse({
    ...bob,
    response_format: zodResponseFormat(Person, "person"),
  });
  assert.deepEqual(answer.choices[0].message.parsed, { name: "Bob", age: 30 });
});

feature("tools", async () => {
  const answer = await scripted.chat.completions.create({ ...weather, tools });
  const [call] = answer.choices[0].message.tool_calls;
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
});

feature("tools, streamed", async () => {
  const stream = scripted.chat.completions.stream({ ...weather, tools });
  const answer = await stream.finalChatCompletion();
  const [call] = answer.choices[0].message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
});

feature("runTools", async () => {
  const cities = [];
  const run = (city) => {
    cities.push(city.city);
    return "22 degrees";
  };
  const runner = scripted.chat.completions.runTools({
    ...weather,
    tools: [{
      type: "function",
      function: { name: "get_weather", parameters, parse: JSON.parse, function: run },
    }],
  });
  assert.equal(await runner.finalContent(), "It is 22 degrees in Paris.");
  assert.deepEqual(cities, ["Paris"]);
});

feature("models.list and retrieve", async () => {
  const models = await smollm2.models.list();
  assert.equal(models.data[0].id, MODEL);
  const model = await smollm2.models.retrieve(MODEL);
  assert.equal(model.id, MODEL);
});

feature("responses", async () => {
  const answer = await smollm2.responses.create({
    model: MODEL,
    input: "Say hello.",
    max_output_tokens: 16,
  });
  assert(answer.output_text);
});

feature("responses, streamed", async () => {
  const stream = smollm2.responses.stream({
    model: MODEL,
    input: "Say hello.",
    max_output_tokens: 16,
  });
  let text = "";
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  const answer = await stream.finalResponse();
  assert.equal(answer.output_text, text);
});

feature("responses.parse with zod", async () => {
  const answer = await scripted.responses.parse({
    model: MODEL,
    input: "Bob is 30.",
    text: { format: zodTextFormat(Person, "person") },
  });
  assert.deepEqual(answer.output_parsed, { name: "Bob", age: 30 });
});

feature("responses with a tool and previous_response_id", async () => {
  const tools = [{ type: "function", name: "get_weather", parameters, strict: false }];
  const asked = await scripted.responses.create({
    model: MODEL,
    input: weather.messages[0].content,
    tools,
  });
  const call = asked.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
  const answer = await scripted.responses.create({
    model: MODEL,
    previous_response_id: asked.id,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "22 degrees" }],
    tools,
  });
  assert.equal(answer.output_text, "It is 22 degrees in Paris.");
});

await main();
