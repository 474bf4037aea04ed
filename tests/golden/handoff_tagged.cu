// ---- make: task kind total -----------------------------------------------------------------
__device__ void body_make(et::Worker& worker, const Args& args) {
  et::task_ready(worker);
  // out = x[0:64], as words that carry their flags
  const et::TaggedStore<float> out_words{out.data, worker.epoch};
    out_words[i0] = (x.data[i0] + v1);
}

__device__ bool task_make(et::Worker& worker, const Args& args) {
  et::task_claim(worker, CALL_make, {});
  body_make(worker, args);
  et::task_end(worker);
  return true;
}

// ---- use: task kind copy -------------------------------------------------------------------
__device__ bool body_use(et::Worker& worker, const Args& args, int64_t i) {
  // x = x[0:64], by words that carry their flags
  if (!et::read_tagged(worker, et::TaggedLoad<float, 1, 16, 1>{x, x_tile, TENSOR_x, &args.x})) return false;
  et::task_ready(worker);
  return true;
}

__device__ bool task_use(et::Worker& worker, const Args& args, int64_t i) {
  et::task_claim(worker, CALL_use, {i});
  if (!body_use(worker, args, i)) return false;
  et::task_end(worker);
  return true;
}

