// Data that carries its flag: an element travels in one word {payload, epoch}, of 4 bytes if it has
// at most two, else of 8. No counter, no fence, and the wait is the read itself.
//
// Contract, by the PTX memory model:
//  * A word is one aligned scalar, written and read with st/ld.relaxed.gpu of its size only, or as
//    part of a vector of such accesses (.v2.b64, .v4.b32), with a tag in EACH. Accesses of one size
//    at one address, both strong and of a scope that holds both threads, are morally strong; so a
//    load gives the value of one whole store, never half of two: payload and tag belong together.
//  * It orders nothing else: to see one word says nothing about another, or about other memory. So
//    every word that is read has its own tag checked here, and the compiler uses flags only where
//    the program is proved without the order that a counter would have given (schedule/flags.py).
//  * Each word is written once a launch (the proof shows that no write of the tensor conflicts with
//    another access but the reads of its value), and launches of a kernel are ordered. A tag equal
//    to the epoch is then the one store of this launch. Words hold tags of earlier epochs only, or 0:
//    the memory is theirs alone, is cleared when it is made, and before the epochs, of 16 bits,
//    begin anew (launch_end in launch.cuh).
//  * Reads end at a block barrier (sync_or), which passes the copies on to all its threads.
#pragma once
#include "cuda/roles/worker.cuh"

namespace et {

// Payload in the low half, epoch in the high half.
template <class S> using Tagged = std::conditional_t<(sizeof(S) <= 2), uint32_t, uint64_t>;

template <class S> ET_HOT Tagged<S> make_tagged(S x, uint32_t epoch) {
  static_assert(sizeof(S) <= 4);
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(S));
  return Tagged<S>(epoch) << 4 * sizeof(Tagged<S>) | bits;
}

template <class S> ET_HOT S payload(Tagged<S> w) {
  const uint32_t bits = uint32_t(w);
  S x;
  std::memcpy(&x, &bits, sizeof(S));
  return x;
}

template <class W> ET_HOT uint32_t tag(W w) { return uint32_t(w >> 4 * sizeof(W)); }

ET_HOT uint32_t tagged_load(const uint32_t* at) { return ptx::ld_relaxed_gpu_b32(at); }
ET_HOT uint64_t tagged_load(const uint64_t* at) { return ptx::ld_relaxed_gpu_b64(at); }

ET_HOT void tagged_store(uint32_t* at, uint32_t w) { ptx::st_relaxed_gpu_b32(at, w); }
ET_HOT void tagged_store(uint64_t* at, uint64_t w) { ptx::st_relaxed_gpu_b64(at, w); }

template <class W> ET_HOT void tagged_store_vector(W* at, const W (&w)[1]) {
  tagged_store(at, w[0]);
}
ET_HOT void tagged_store_vector(uint32_t* at, const uint32_t (&w)[4]) {
  ptx::st_relaxed_gpu_v4_b32(at, w);
}
ET_HOT void tagged_store_vector(uint64_t* at, const uint64_t (&w)[2]) {
  ptx::st_relaxed_gpu_v2_b64(at, w);
}

// A vector: words that a lane loads at once, neighbours in 16 aligned bytes (BYTES = 16) or a
// single one (BYTES = 4), in registers.
using TaggedVector = uint32_t[4];
template <int BYTES, class W> constexpr uint32_t PER_VECTOR = BYTES == 16 ? 16 / sizeof(W) : 1;

// Lanes that do not want it leave it as it is.
template <int BYTES> ET_HOT void load_vector(bool wanted, const uint32_t* at, TaggedVector& to) {
  if constexpr (BYTES == 16) ptx::ld_relaxed_gpu_v4_b32_if(wanted, at, to);
  else ptx::ld_relaxed_gpu_b32_if(wanted, at, to);
}
template <int BYTES> ET_HOT void load_vector(bool wanted, const uint64_t* at, TaggedVector& to) {
  if constexpr (BYTES == 16) ptx::ld_relaxed_gpu_v2_b64_if(wanted, at, to);
  else ptx::ld_relaxed_gpu_b64_if(wanted, at, to);
}
template <class W> ET_HOT W word_of(const TaggedVector& place, uint32_t k) {
  if constexpr (sizeof(W) == 4) return place[k];
  else return W(place[2 * k + 1]) << 32 | place[2 * k];
}

// The address of a word of either size, 0 for none; the lowest bit is set for one of 4 bytes.
using AnyTagged = uint64_t;
template <class W> ET_HOT AnyTagged any_tagged(const W* at) {
  return reinterpret_cast<AnyTagged>(at) | (sizeof(W) == 4);
}
ET_HOT uint32_t tag_at(AnyTagged at) {
  return at % 2 != 0 ? tag(tagged_load(reinterpret_cast<const uint32_t*>(at - 1)))
                     : tag(tagged_load(reinterpret_cast<const uint64_t*>(at)));
}

// ---- regions of words ------------------------------------------------------------------------

template <class W, int R> ET_HOT uint32_t tagged_count(const View<W, R>& v) {
  int64_t n = 1;
  for (int k = 0; k < R; ++k) n *= v.extent[k] < 0 ? 0 : v.extent[k];
  return uint32_t(n);
}

// Where element `e` (row-major in the region) lies; a region spans fewer than 2^32 words. One
// without elements is asked too, for a place that nobody touches.
template <class W, int R> ET_HOT W* tagged_at(const View<W, R>& v, uint32_t e) {
  uint32_t at = 0;
  for (int k = R - 1; k > 0; --k) {
    const uint32_t n = v.extent[k] > 0 ? uint32_t(v.extent[k]) : 1;
    at += e % n * uint32_t(v.stride[k]);
    e /= n;
  }
  return v.data + (R > 0 ? at + e * uint32_t(v.stride[0]) : at);
}

// True if the region is made of places of 16 bytes.
template <class W, int R> ET_HOT bool is_vectors(const View<W, R>& v) {
  constexpr int last = R > 0 ? R - 1 : 0, N = PER_VECTOR<16, W>;
  if (R == 0 || v.stride[last] != 1 || v.extent[last] % N != 0) return false;
  for (int k = 0; k < last; ++k)
    if (v.stride[k] % N != 0) return false;
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
}

// ---- publish -----------------------------------------------------------------------------------

// Elements that become words as they are assigned, each once.
template <class S> struct TaggedStore {
  struct Element {
    Tagged<S>* at;
    uint32_t epoch;
    ET_HOT void operator=(S x) const { tagged_store(at, make_tagged(x, epoch)); }
  };
  Tagged<S>* data;
  uint32_t epoch;
  ET_HOT Element operator[](int64_t k) const { return {data + k, epoch}; }
};

template <int BYTES, class S, int R>
ET_HOT void store_tagged(uint32_t epoch, const View<Tagged<S>, R>& to, const S* tile) {
  constexpr uint32_t N = PER_VECTOR<BYTES, Tagged<S>>;
  const uint32_t n = tagged_count(to) / N;
  ET_ROLLED for (uint32_t e = uint32_t(thread_rank()); e < n; e += uint32_t(num_threads())) {
    Tagged<S> w[N];
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) w[k] = make_tagged(tile[e * N + k], epoch);
    tagged_store_vector(tagged_at(to, e * N), w);
  }
}

// Writes a dense tile as words, each once. By all threads, after a barrier that ended the tile.
template <class S, int R>
ET_HOT void write_tagged(const Worker& w, const View<Tagged<S>, R>& to, const S* tile) {
  if (is_vectors(to)) store_tagged<16>(w.epoch, to, tile);
  else store_tagged<4>(w.epoch, to, tile);
}

// ---- await -------------------------------------------------------------------------------------

// A region of words, and the dense tile that they are copied into, in places of BYTES; a thread has
// SLOTS of them at once. `tensor` and where its first word lies are for the report.
template <class S, int R, int BYTES, uint32_t SLOTS_> struct TaggedLoad {
  using W = Tagged<S>;
  static constexpr uint32_t SLOTS = SLOTS_, N = PER_VECTOR<BYTES, W>;
  View<const W, R> from;
  S* tile;
  int64_t tensor;
  W* const* base;

  ET_HOT uint32_t places() const { return tagged_count(from) / N; }
  ET_HOT const W* at(uint32_t e) const { return tagged_at(from, N * e); }
  ET_HOT void load(bool wanted, uint32_t e, TaggedVector& to) const {
    load_vector<BYTES>(wanted, at(e), to);
  }
  // Copies place `e`, if all its words are there.
  ET_HOT bool put(uint32_t e, const TaggedVector& place, uint32_t epoch) const {
    struct alignas(N * sizeof(S)) Some { S x[N]; } some;
    bool there = true;
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) {
      const W w = word_of<W>(place, k);
      there = there && tag(w) == epoch;
      some.x[k] = payload<S>(w);
    }
    if (there) *reinterpret_cast<Some*>(tile + N * e) = some;
    return there;
  }
  // The element that is `word`; -1 if that lies elsewhere.
  ET_HOT int64_t element(AnyTagged word) const {
    const uint32_t n = tagged_count(from);
    if (n == 0 || word < any_tagged(from.data) || word > any_tagged(tagged_at(from, n - 1))) return -1;
    return int64_t(word - any_tagged(*base)) / int64_t(sizeof(W));
  }
};

// The first of some neighbours that is missing (the last, if all have come meanwhile).
ET_COLD AnyTagged untagged(AnyTagged at, uint32_t count, uint32_t epoch) {
  for (uint32_t k = 1; k < count && tag_at(at) == epoch; ++k) at += at % 2 != 0 ? 4 : 8;
  return at;
}

// The places of a thread in one round, region by region: f(slot, number in the region, region).
template <uint32_t SLOT = 0, class F, class W, class... More>
ET_HOT void each_vector(uint32_t me, uint32_t round, const F& f, const W& words,
                       const More&... more) {
#pragma unroll
  for (uint32_t k = 0; k < W::SLOTS; ++k)
    f(SLOT + k, me + (round * W::SLOTS + k) * ET_THREADS, words);
  if constexpr (sizeof...(More) > 0) each_vector<SLOT + W::SLOTS>(me, round, f, more...);
}

// What a look does with each place; bit f of `left`: what slot f is for is not there yet. These are
// structs, as NVRTC 13.0 takes generic lambdas for host functions.
struct CountVectors {
  unsigned& left;
  template <class W> ET_HOT void operator()(uint32_t f, uint32_t e, const W& from) const {
    left |= unsigned(e < from.places()) << f;
  }
};
struct IssueLoads {
  const unsigned& left;
  TaggedVector* at;
  template <class W> ET_HOT void operator()(uint32_t f, uint32_t e, const W& from) const {
    from.load((left >> f & 1) != 0, e, at[f]);
  }
};
struct CommitLoads {
  unsigned& left;
  const TaggedVector* at;
  uint32_t epoch;
  template <class W> ET_HOT void operator()(uint32_t f, uint32_t e, const W& from) const {
    if ((left >> f & 1) != 0 && from.put(e, at[f], epoch)) left &= ~(1u << f);
  }
};
struct FirstLeft {
  const unsigned& left;
  AnyTagged& word;
  uint32_t& in_place;
  template <class W> ET_HOT void operator()(uint32_t f, uint32_t e, const W& from) const {
    if (in_place == 0 && (left >> f & 1) != 0) word = any_tagged(from.at(e)), in_place = W::N;
  }
};

// Copies the places of this thread into their tiles, as many at once as it has slots: all that
// there are, as far as the plan knows how many (codegen/cuda/handoff.py). Their loads are in flight
// together, for each look is a trip to the L2; so each slot has registers of its own. A thread asks
// for what it misses, and for nothing else: with few words in all, idle lanes would crowd the one
// that everybody waits for. After `tries` looks in vain a word that is missing (0 if only other
// lanes of the warp miss some), else 0. All lanes of a warp stay together.
template <class... W>
ET_HOT AnyTagged poll_tagged(uint32_t epoch, int tries, const W&... words) {
  const uint32_t me = thread_number();
  for (uint32_t round = 0; ((round * W::SLOTS * ET_THREADS < words.places()) || ...); ++round) {
    unsigned left = 0;
    each_vector(me, round, CountVectors{left}, words...);
    for (;;) {
      const uint32_t again = anew(me);
      TaggedVector at[(W::SLOTS + ...)] = {};
      each_vector(again, round, IssueLoads{left, at}, words...);
      each_vector(again, round, CommitLoads{left, at, epoch}, words...);
      if (!__any_sync(~0u, left != 0)) break;
      if (--tries > 0) continue;
      AnyTagged mine = 0;
      uint32_t in_place = 0;
      each_vector(again, round, FirstLeft{left, mine, in_place}, words...);
      return untagged(mine, in_place, epoch);
    }
  }
  return 0;
}

// By all threads: one of the words that some of them miss. They meet in it.
ET_FN AnyTagged missing_tagged(AnyTagged missing) {
  constexpr int COUNT = ET_THREADS / 32;
  __shared__ AnyTagged found[COUNT];
  const unsigned me = thread_number(), lanes_missing = __ballot_sync(~0u, missing != 0);
  const unsigned speaker = lanes_missing == 0 ? 0 : unsigned(__ffs(int(lanes_missing)) - 1);
  if (me % 32 == speaker) found[me / 32] = missing;
  sync();
  AnyTagged at = 0;
  ET_ROLLED for (int k = 0; k < COUNT; ++k) at = at == 0 ? found[k] : at;
  return at;
}

// By all threads, some of which miss a word: one of these is waited for. 0 when it has come; else
// the launch is given up, and all get the word (of which the caller tells the host if it was the
// limit that ended the wait) or, if others gave up, the place of the abort flag.
ET_COLD AnyTagged wait_tagged(const Shared& shared, uint32_t epoch, AnyTagged missing) {
  const AnyTagged at = missing_tagged(missing);
  bool gone = false, stuck = false;
  if (is_leader()) {
    StallDetector stall(shared, blockIdx.x);
    while (!gone && !stuck && tag_at(at) != epoch) {
      gone = aborted(shared);
      stuck = !stall.poll_backoff();
    }
  }
  if (sync_or(gone)) return any_tagged(reinterpret_cast<const uint64_t*>(&shared.control->abort));
  return sync_or(stuck) ? at : 0;
}

template <class W> ET_HOT void report_untagged(const Worker& w, const W& words, AnyTagged stuck) {
  const int64_t element = words.element(stuck);
  if (is_leader() && element >= 0)
    fail(w, STUCK_FLAG, words.tensor, element, w.epoch, tag_at(stuck));
}

// Copies regions of words into dense tiles, once all of them are there; false (in all threads) if
// the launch is given up. Then `last` is done, and all meet.
template <class F, class... W>
ET_HOT bool read_tagged_with(const Worker& w, const F& last, const W&... words) {
  constexpr int TRIES = 256;  // some hundred microseconds: then one may ask whether anything moves
  for (;;) {
    const AnyTagged missing = poll_tagged(w.epoch, TRIES, words...);
    last();
    if (!sync_or(missing != 0)) return true;
    const AnyTagged stuck = wait_tagged(*w.shared, w.epoch, missing);
    if (stuck == 0) continue;
    (report_untagged(w, words, stuck), ...);
    return false;
  }
}
template <class... W> ET_HOT bool read_tagged(const Worker& w, const W&... words) {
  return read_tagged_with(w, [] {}, words...);
}

// ---- tables ------------------------------------------------------------------------------------

// A number that says where something lies, by who has waited for the event that its writer tells.
template <class S> ET_HOT int64_t number_in(Tagged<S> word) { return int64_t(payload<S>(word)); }

// By the producer: the numbers of a table, as soon as all of them are there. They order nothing
// else: nobody writes the data that they point at. False if the tasks are over.
template <class ProducerWarp, template <class, uint32_t> class Table, class S, uint32_t N>
ET_HOT bool look_up_tagged(ProducerWarp& producer, Table<S, N>& table, const Tagged<S>* from) {
  return producer.until([&](uint32_t epoch) {
    return table.take([&](uint32_t k, typename Table<S, N>::Kept& to) {
      const Tagged<S> word = tagged_load(from + k);
      to = payload<S>(word);
      return tag(word) == epoch;
    });
  });
}

}  // namespace et
