// ---- make: task kind copy ------------------------------------------------------------------
__device__ void body_make(et::Worker& worker, const Args& args, int64_t i) {
  et::task_ready(worker);
  worker.pipeline.task_begin();
  worker.pipeline.task_end();
}

__device__ bool task_make(et::Worker& worker, const Args& args, int64_t i) {
  et::task_claim(worker, CALL_make, {i});
  body_make(worker, args, i);
  if (et::is_leader()) {
    // notify make_done[i]
    et::ev_notify(worker, args.cell.make_done, i);
  }
  et::task_end(worker);
  return true;
}

// ---- use: task kind product ----------------------------------------------------------------
__device__ bool body_use(et::Worker& worker, const Args& args, int64_t i, int64_t j) {
  if (!et::ev_wait(worker, args.cell.make_done, i, 1)) return false;
  // x = x[i*16:i*16 + 16, 0:64], by one copy
  const float* const x_here = worker.bulk_loader.bring<float>(x_tile, x.data, e2, false);
  et::task_ready(worker);
  worker.pipeline.task_begin();
  worker.pipeline.task_end();
  return true;
}

__device__ bool task_use(et::Worker& worker, const Args& args, int64_t i, int64_t j) {
  et::task_claim(worker, CALL_use, {i, j});
  if (!body_use(worker, args, i, j)) return false;
  et::task_end(worker);
  return true;
}

