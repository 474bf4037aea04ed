// What threads of a block have asked for and is not there yet: copies of 16 bytes, and products of
// warpgroups; and which of their writes tensor cores do not see yet. See cuda/ptx/cp_async.cuh and
// cuda/ptx/wgmma.cuh.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace emu {

struct Asked { uint32_t to; const void* from; };

// Copies of a thread that land together, and then arrive at a barrier.
struct Late {
  std::vector<Asked> copies;
  int thread;
  uint32_t bar;
};

// d += a b for the rows and columns of one thread.
struct Product {
  float* d;
  int n;                      // columns of B
  uint64_t a, b;              // descriptors
  float (*number)(uint16_t);  // of its bits
  std::vector<char> rows;     // this lane's of A when it was asked for,
  std::vector<char> seen;     // and its share of B
};

// The sums of products that are not waited for: `d` itself holds poison.
struct Sums {
  std::vector<float> held;
  int flying = 0;  // products that are not in them yet
};

// Of one thread. Groups are the oldest first; the last one is open.
struct Pending {
  std::deque<std::vector<Asked>> copies{1};
  std::deque<std::vector<Product>> products{1};
  std::map<float*, Sums> sums;
  bool fenced = false;
  std::set<const void*> changed;  // registers, since the last fence
};

// All warps of a group ask for the same products; those that some have not asked for yet.
class Warpgroup {
 public:
  // Whether it is what the others have asked for at this place.
  bool ask(int warp, uint64_t a, uint64_t b, int n) {
    const uint64_t at = asked_[warp]++ - all_;
    if (at == open_.size()) open_.push_back({a, b, n});
    const bool same = open_[at].a == a && open_[at].b == b && open_[at].n == n;
    while (!open_.empty() && asked_[0] > all_ && asked_[1] > all_ && asked_[2] > all_ &&
           asked_[3] > all_)
      open_.pop_front(), ++all_;
    return same;
  }
  bool whole() const { return open_.empty(); }

 private:
  struct One { uint64_t a, b; int n; };
  std::deque<One> open_;
  uint64_t asked_[4] = {}, all_ = 0;  // by each warp; by all of them
};

// Who has written each 16 bytes of shared memory last, when, and had passed how many fences between
// the proxies then. Tensor cores see it after another one, and a barrier after that, or after a fence
// of who asks for the product. Writes through plain pointers are not known.
class Proxies {
 public:
  static constexpr int NOBODY = -1;
  Proxies(size_t bytes, int threads) : places_(bytes / 16 + 1), threads_(threads) {}
  void fence(int thread) {
    ++threads_[thread].fences;
    threads_[thread].saw = clock_;
  }
  void arrive(int thread) { threads_[thread].shown = threads_[thread].fences; }
  void asked(size_t at, int thread) { places_[at / 16] = {thread, 0}; }  // it lands later
  void wrote(size_t at, int thread) {
    places_[at / 16] = {thread, threads_[thread].fences, ++clock_};
  }
  void copied(size_t at, size_t bytes) {  // by the other proxy
    for (size_t k = at / 16; k < (at + bytes) / 16; ++k) places_[k] = {};
  }
  // Who has written it, if tensor cores may not see it for this thread.
  int hidden(size_t at, int reader) const {
    const Place p = places_[at / 16];
    const bool shown = p.fences != 0 && p.thread != NOBODY && p.fences < threads_[p.thread].shown;
    const bool seen = p.fences != 0 && p.time <= threads_[reader].saw;
    return p.thread == NOBODY || shown || seen ? NOBODY : p.thread;
  }

 private:
  struct Place { int thread = NOBODY; uint32_t fences = 0; uint64_t time = 0; };
  struct Thread { uint32_t fences = 1, shown = 1; uint64_t saw = 0; };
  std::vector<Place> places_;
  std::vector<Thread> threads_;
  uint64_t clock_ = 0;
};

}  // namespace emu
