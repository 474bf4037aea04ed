// ---- make: task kind copy ------------------------------------------------------------------
__device__ void body_make(et::Worker& worker, const Args& args, int64_t i) {
  et::task_ready(worker);
}

__device__ bool task_make(et::Worker& worker, const Args& args, int64_t i) {
  et::task_claim(worker, CALL_make, {i});
  body_make(worker, args, i);
  et::task_end(worker);
  return true;
}

// ---- use: task kind copy -------------------------------------------------------------------
__device__ void body_use(et::Worker& worker, const Args& args, int64_t i) {
  et::task_ready(worker);
}

__device__ bool task_use(et::Worker& worker, const Args& args, int64_t i) {
  et::task_claim(worker, CALL_use, {i});
  body_use(worker, args, i);
  et::task_end(worker);
  return true;
}

