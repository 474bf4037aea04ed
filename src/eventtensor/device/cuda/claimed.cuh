// Tiles by ticket where the loader claims: its side, and that of the threads that run them.
#pragma once
#include "loader.cuh"

namespace et {

class ClaimingTiles {
 public:
  ET_FN ClaimingTiles(Loader& loader, int64_t cell) : loader_(loader) { loader_.claims_from(cell); }
  ET_FN ~ClaimingTiles() { loader_.claims_end(); }
  ClaimingTiles(const ClaimingTiles&) = delete;
  ET_FN int64_t next() { return loader_.claim(); }

 private:
  Loader& loader_;
};

class ToldTiles {
 public:
  ET_FN explicit ToldTiles(Worker& w) : pages_(w.pages) {}
  ET_FN int64_t next() { return pages_.tile(); }

 private:
  Pages& pages_;
};

}  // namespace et
