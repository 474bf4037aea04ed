// Tiles that workers of a cluster take from each other's shared memory (hand-off `cluster`). sm_90
// and later.
//
// Contract. All members come to the same pairs of tiles in the same order, a maker's and then a
// taker's, and count them. Each has a word of every member for the tiles that it has made, and one
// for those that it has taken.
//  * made: all threads that run tasks meet at sync() after the maker's body, then one stores the
//    count to every member, behind a fence at cluster scope (one for all: a release is a fence each
//    time). That is a release, which carries what the block has written, to shared memory and
//    elsewhere (bar.sync orders all threads before it; see sync.cuh).
//  * take: one thread does ld.acquire on its own block's words until all members have made as many,
//    then all meet; their plain loads from shared memory of others follow. So the edge gives all
//    that a counter would, among these blocks.
//  * taken: all threads meet after the taker's body, then one stores the count in the same way, and
//    acquires those of all members before the block goes on: its tile lies where lines of products
//    and temporaries of later tasks do, and nobody reads it any more. Who copies there in bulk has
//    all threads do fence_shared_reads first, which is behind that acquire.
//  * Shared memory of another block is there from when all have met after their begin until they
//    meet at their end, also if the launch is given up: waits look at the abort flag.
#pragma once
#include "bulk.cuh"
#include "worker.cuh"

namespace et {

enum class Deed { made, taken };

// Of every member, how many tiles it has made, and taken from the others.
class ClusterWords {
 public:
  // By all threads of all members, before anything else.
  ET_FN static void begin() {
    if (threadIdx.x < 2 * ET_CLUSTER) words()[threadIdx.x] = 0;
    ptx::cluster_meet(blockDim.x);
  }
  // By all threads that run tasks, after the last one.
  ET_FN static void end() { ptx::cluster_meet(ET_THREADS); }

  // By one thread.
  template <Deed WHAT> ET_FN static void tell(uint32_t count) {
    const uint32_t mine = place<WHAT>(blockIdx.x % ET_CLUSTER);
    ptx::fence_acq_rel_cluster();
    for (uint32_t k = 0; k < ET_CLUSTER; ++k) ptx::st_relaxed_cluster(ptx::mapa(mine, k), count);
  }
  // What all members have told.
  template <Deed WHAT> ET_FN static uint32_t least() {
    uint32_t found = ~0u;
    for (uint32_t k = 0; k < ET_CLUSTER; ++k)
      found = std::min(found, ptx::ld_acquire_cluster(place<WHAT>(k)));
    return found;
  }

 private:
  ET_FN static uint32_t* words() {
    __shared__ uint32_t all[2 * ET_CLUSTER];
    return all;
  }
  template <Deed WHAT> ET_FN static uint32_t place(uint32_t member) {
    return shared_address(words() + int(WHAT) * ET_CLUSTER + member);
  }
};

// By the leading thread: until all members have told so many; false if the launch is given up.
template <Deed WHAT> ET_COLD bool wait_cluster(const Shared& shared, uint32_t count) {
  ET_ROLLED for (int turn = 0; turn < 256; ++turn)
    if (ClusterWords::least<WHAT>() >= count) return true;
  Patience patience(shared, blockIdx.x);
  for (int turn = 1; ClusterWords::least<WHAT>() < count; ++turn) {
    if (turn % 8 == 0 && aborted(shared)) return false;
    if (!patience.pause())
      return fail_at(shared, blockIdx.x, where(), STUCK_CLUSTER, int64_t(WHAT), 0, count,
                     ClusterWords::least<WHAT>());
  }
  return true;
}

// First in a taker's tile, after a sync() behind its maker's body: the members may take that.
ET_FN void made_for_cluster(Worker& w) {
  ++w.tiles_made;
  if (leads()) ClusterWords::tell<Deed::made>(w.tiles_made);
}

// An element of this block's tile: how far the same one of each member is from it, in elements, is
// in `table`. All have made theirs; null if the launch is given up.
template <class T> ET_FN const T* take_from_cluster(Worker& w, int64_t* table, int64_t at) {
  const uint32_t made = w.tiles_made;
  const bool there = for_all(w, [&] { return wait_cluster<Deed::made>(*w.shared, made); }) != 0;
  const T* const mine = ptx::of_member(w.held<const T>(), blockIdx.x % ET_CLUSTER);
  if (threadIdx.x < ET_CLUSTER)
    table[threadIdx.x] = ptx::of_member(w.held<const T>(), threadIdx.x) - mine;
  sync();
  return there ? mine + at : nullptr;
}

// After the taker's tile, whose threads have met since, and whose own notifies come first.
ET_FN bool taken_from_cluster(Worker& w) {
  const uint32_t made = w.tiles_made;
  return for_all(w, [&] {
    ClusterWords::tell<Deed::taken>(made);
    return wait_cluster<Deed::taken>(*w.shared, made);
  }) != 0;
}

}  // namespace et
