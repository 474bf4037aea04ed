// Data that carries its flag: an element travels as one 8-byte word {payload, epoch}. No counter,
// no fence, and the wait is the read itself.
//
// Contract, by the PTX memory model:
//  * A word is one aligned 64-bit scalar, written and read with st/ld.relaxed.gpu.b64 only, or as
//    half of a .v2.b64, which is two such accesses with a tag in EACH. Accesses of one size at one
//    address, both strong and of a scope that holds both threads, are morally strong; so a load
//    gives the value of one whole store, never half of two: payload and tag belong together.
//  * It orders nothing else: to see one word says nothing about another, or about other memory. So
//    every word that is read has its own tag checked here, and the compiler uses flags only where
//    the program is proved without the order that a counter would have given (schedule/flags.py).
//  * Each word is written once a launch (the proof shows that no write of the tensor conflicts with
//    another access but the reads of its value), and launches of a kernel are ordered. A tag equal
//    to the epoch is then the one store of this launch. Words hold tags of earlier epochs only, or
//    0: the memory is theirs alone, is cleared when it is made, and before the epochs begin anew
//    (turn_over in worker.cuh).
//  * Reads end at a block barrier (sync_or), which passes the copies on to all its threads.
#pragma once
#include "worker.cuh"

namespace et {

using Word = uint64_t;  // payload in the low half, epoch in the high half

template <class S> ET_HOT Word make_word(S x, uint32_t epoch) {
  static_assert(sizeof(S) <= 4);
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(S));
  return Word(epoch) << 32 | bits;
}

template <class S> ET_HOT S payload(Word w) {
  const uint32_t bits = uint32_t(w);
  S x;
  std::memcpy(&x, &bits, sizeof(S));
  return x;
}

ET_HOT uint32_t tag(Word w) { return uint32_t(w >> 32); }

ET_HOT bool all_tagged(const Word (&w)[1], uint32_t epoch) { return tag(w[0]) == epoch; }
ET_HOT bool all_tagged(const Word (&w)[2], uint32_t epoch) {
  return tag(w[0]) == epoch && tag(w[1]) == epoch;
}

ET_HOT Word word_load(const Word* at) { return ptx::ld_relaxed_gpu_b64(at); }
ET_HOT void word_store(Word* at, Word w) { ptx::st_relaxed_gpu_b64(at, w); }

// Two neighbours, the first 16-byte aligned.
ET_HOT void words_load(const Word* at, Word (&w)[2]) { ptx::ld_relaxed_gpu_v2_b64(at, w); }
ET_HOT void words_load(const Word* at, Word (&w)[1]) { w[0] = word_load(at); }

ET_HOT void words_store(Word* at, const Word (&w)[2]) { ptx::st_relaxed_gpu_v2_b64(at, w); }
ET_HOT void words_store(Word* at, const Word (&w)[1]) { word_store(at, w[0]); }

// ---- regions of words ------------------------------------------------------------------------

template <class W, int R> ET_HOT uint32_t word_count(const View<W, R>& v) {
  int64_t n = 1;
  for (int k = 0; k < R; ++k) n *= v.extent[k] < 0 ? 0 : v.extent[k];
  return uint32_t(n);
}

// Where element `e` (row-major in the region) lies; a region spans fewer than 2^32 words. One
// without elements is asked too, for a place that nobody touches.
template <class W, int R> ET_HOT W* word_at(const View<W, R>& v, uint32_t e) {
  uint32_t at = 0;
  for (int k = R - 1; k > 0; --k) {
    const uint32_t n = v.extent[k] > 0 ? uint32_t(v.extent[k]) : 1;
    at += e % n * uint32_t(v.stride[k]);
    e /= n;
  }
  return v.data + (R > 0 ? at + e * uint32_t(v.stride[0]) : at);
}

// True if the region is made of aligned pairs of neighbours.
template <class W, int R> ET_HOT bool word_pairs(const View<W, R>& v) {
  constexpr int last = R > 0 ? R - 1 : 0;
  if (R == 0 || v.stride[last] != 1 || v.extent[last] % 2 != 0) return false;
  for (int k = 0; k < last; ++k)
    if (v.stride[k] % 2 != 0) return false;
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
}

// ---- publish -----------------------------------------------------------------------------------

// Elements that become words as they are assigned, each once.
template <class S> struct WordsOut {
  struct Place {
    Word* at;
    uint32_t epoch;
    ET_HOT void operator=(S x) const { word_store(at, make_word(x, epoch)); }
  };
  Word* data;
  uint32_t epoch;
  ET_HOT Place operator[](int64_t k) const { return {data + k, epoch}; }
};

template <int V, class S, int R>
ET_HOT void flag_store(uint32_t epoch, const View<Word, R>& to, const S* tile) {
  const uint32_t n = word_count(to) / V;
  ET_ROLLED for (uint32_t e = uint32_t(lane()); e < n; e += uint32_t(lanes())) {
    Word w[V];
#pragma unroll
    for (int k = 0; k < V; ++k) w[k] = make_word(tile[e * V + k], epoch);
    words_store(word_at(to, e * V), w);
  }
}

// Writes a dense tile as words, each once. By all threads, after a barrier that ended the tile.
template <class S, int R>
ET_HOT void flag_write(const Worker& w, const View<Word, R>& to, const S* tile) {
  if (word_pairs(to)) flag_store<2>(w.epoch, to, tile);
  else flag_store<1>(w.epoch, to, tile);
}

// ---- await -------------------------------------------------------------------------------------

// A region of words, and the dense tile that they are copied into. `tensor` and the place of its
// first word are for the report.
template <class S, int R> struct Words {
  View<const Word, R> from;
  S* tile;
  int64_t tensor;
  Word* const* base;

  template <int V> ET_HOT uint32_t count() const { return word_count(from) / V; }
  template <int V> ET_HOT const Word* at(uint32_t e) const { return word_at(from, V * e); }
  template <int V> ET_HOT void put(uint32_t e, const Word (&w)[V]) const {
    struct alignas(V * sizeof(S)) Some { S x[V]; } some;
#pragma unroll
    for (int k = 0; k < V; ++k) some.x[k] = payload<S>(w[k]);
    *reinterpret_cast<Some*>(tile + V * e) = some;
  }
  ET_HOT bool has(const Word* word) const {
    const uint32_t n = word_count(from);
    return n > 0 && word >= from.data && word <= word_at(from, n - 1);
  }
};

// Puts what place `e` has into the tile of its region. Places are V words; those of several regions
// are numbered one after the other.
template <int V, class W>
ET_HOT void put_at(uint32_t e, const Word (&w)[V], const W& words) { words.put(e, w); }
template <int V, class W, class... More>
ET_HOT void put_at(uint32_t e, const Word (&w)[V], const W& words, const More&... more) {
  const uint32_t n = words.template count<V>();
  if (e < n) words.put(e, w);
  else put_at<V>(e - n, w, more...);
}

// The word that place `e` begins with. Both addresses are made, and one is taken: no branch.
template <int V, class W> ET_HOT const Word* place_at(uint32_t e, const W& words) {
  return words.template at<V>(e);
}
template <int V, class W, class... More>
ET_HOT const Word* place_at(uint32_t e, const W& words, const More&... more) {
  const uint32_t n = words.template count<V>();
  const Word* const here = words.template at<V>(e);
  const Word* const there = place_at<V>(e - n, more...);
  return e < n ? here : there;
}

// The word of a place that is missing (the first, if all have come meanwhile).
template <int V> ET_HOT const Word* untagged(const Word* place, uint32_t epoch) {
  return V == 2 && tag(word_load(place)) == epoch ? place + 1 : place;
}

// Copies the places of this thread into their tiles. Loads of all regions are in flight together,
// as many as `auto` hands over by flags at most (schedule/handoff.py): each look is a trip to the
// L2. Then a thread asks again for what it misses. While most lanes of a warp miss something, one
// lane watches one word: few pollers leave the memory system to those who bring the data. After
// `tries` looks in vain a word that is missing (null if only other lanes of the warp miss some),
// else null. All lanes of a warp stay together.
template <int V, class... W>
ET_HOT const Word* flag_poll(uint32_t epoch, int tries, const W&... words) {
  constexpr uint32_t FLIGHT = 12 / V, MOST = 16;
  const uint32_t n = (words.template count<V>() + ...), step = ET_THREADS, me = thread_number();
  for (uint32_t base = me; base - me < n; base += FLIGHT * step) {
    unsigned left = 0;  // bit f: place f is not there yet
#pragma unroll
    for (uint32_t f = 0; f < FLIGHT; ++f) left |= unsigned(base + f * step < n) << f;
    for (;;) {
      const uint32_t first = anew(base);
      Word w[FLIGHT][V];
#pragma unroll
      for (uint32_t f = 0; f < FLIGHT; ++f)  // lanes that miss nothing meet at place 0: no branch
        words_load(place_at<V>((left >> f & 1) != 0 ? first + f * step : 0, words...), w[f]);
#pragma unroll
      for (uint32_t f = 0; f < FLIGHT; ++f) {
        if ((left >> f & 1) == 0 || !all_tagged(w[f], epoch)) continue;
        put_at<V>(first + f * step, w[f], words...);
        left &= ~(1u << f);
      }
      const unsigned missing = __ballot_sync(~0u, left != 0);
      if (missing == 0) break;
      const Word* const mine =
          left == 0 ? nullptr : place_at<V>(first + uint32_t(__ffs(int(left)) - 1) * step, words...);
      bool came = --tries > 0;
      if (n > step && __popc(missing) > int(MOST) && me % 32 == uint32_t(__ffs(int(missing)) - 1))
        while (!(came = tag(word_load(mine)) == epoch) && --tries > 0) {}
      if (__any_sync(~0u, !came)) return mine == nullptr ? mine : untagged<V>(mine, epoch);
    }
  }
  return nullptr;
}

// By all threads: one of the words that some of them miss. They meet in it.
ET_FN const Word* flag_missed(const Word* missing) {
  constexpr int COUNT = ET_THREADS / 32;
  __shared__ const Word* found[COUNT];
  const unsigned me = thread_number(), lanes_missing = __ballot_sync(~0u, missing != nullptr);
  const unsigned speaker = lanes_missing == 0 ? 0 : unsigned(__ffs(int(lanes_missing)) - 1);
  if (me % 32 == speaker) found[me / 32] = missing;
  sync();
  const Word* at = nullptr;
  ET_ROLLED for (int k = 0; k < COUNT; ++k) at = at == nullptr ? found[k] : at;
  return at;
}

// By all threads, some of which miss a word: one of these is waited for. Null when it has come; else
// the launch is given up, and all get the word (of which the caller tells the host if it was the
// limit that ended the wait) or, if others gave up, the place of the abort flag.
ET_COLD const Word* flag_wait(const Shared& shared, uint32_t epoch, const Word* missing) {
  const Word* const at = flag_missed(missing);
  bool gone = false, stuck = false;
  if (leads()) {
    Patience patience(shared, blockIdx.x);
    while (!gone && !stuck && tag(word_load(at)) != epoch) {
      gone = aborted(shared);
      stuck = !patience.pause();
    }
  }
  if (sync_or(gone)) return reinterpret_cast<const Word*>(&shared.control->abort);
  return sync_or(stuck) ? at : nullptr;
}

template <class S, int R>
ET_HOT void flag_report(const Worker& w, const Words<S, R>& words, const Word* stuck) {
  if (leads() && words.has(stuck))
    fail(w, STUCK_FLAG, words.tensor, stuck - *words.base, w.epoch, tag(word_load(stuck)));
}

// Copies regions of words into dense tiles, once all of them are there; false (in all threads) if
// the launch is given up. With V = 2 all of them are made of aligned pairs. Then `last` is done,
// and all meet.
template <int V, class F, class... W>
ET_HOT bool flag_read_with(const Worker& w, const F& last, const W&... words) {
  constexpr int TRIES = 256;  // some hundred microseconds: then one may ask whether anything moves
  for (;;) {
    const Word* const missing = flag_poll<V>(w.epoch, TRIES, words...);
    last();
    if (!sync_or(missing != nullptr)) return true;
    const Word* const stuck = flag_wait(*w.shared, w.epoch, missing);
    if (stuck == nullptr) continue;
    (flag_report(w, words, stuck), ...);
    return false;
  }
}

template <int V, class... W> ET_HOT bool flag_read(const Worker& w, const W&... words) {
  return flag_read_with<V>(w, [] {}, words...);
}

}  // namespace et
