// Tiles by ticket where the producer claims: its side, and that of the threads that run them.
#pragma once
#include "cuda/roles/producer.cuh"

namespace et {

class ClaimingScheduler {
 public:
  ET_FN ClaimingScheduler(ProducerWarp& producer, int64_t cell) : loader_(producer) {
    loader_.begin_claims(cell);
  }
  ET_FN ~ClaimingScheduler() { loader_.end_claims(); }
  ClaimingScheduler(const ClaimingScheduler&) = delete;
  ET_FN int64_t next() { return loader_.claim(); }

 private:
  ProducerWarp& loader_;
};

class ForwardedTiles {
 public:
  ET_FN explicit ForwardedTiles(Worker& w) : pipeline_(w.pipeline) {}
  ET_FN int64_t next() { return pipeline_.tile(); }

 private:
  PipelineConsumer& pipeline_;
};

}  // namespace et
