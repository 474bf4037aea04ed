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

// Where element `e` (row-major in the region) lies.
template <class W, int R> ET_HOT W* word_at(const View<W, R>& v, uint32_t e) {
  int64_t at = 0;
  for (int k = R - 1; k > 0; --k) {
    at += e % uint32_t(v.extent[k]) * v.stride[k];
    e /= uint32_t(v.extent[k]);
  }
  return v.data + at + (R > 0 ? e * v.stride[0] : 0);
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

constexpr int64_t NONE_MISSING = -1, OTHERS_MISSING = -2;

// Copies the words of this thread into the tile, V at a time, several loads in flight before the
// first tag is looked at. Where words of a warp are missing its lanes look again, each at its own;
// if they have many, one lane watches one word: few pollers leave the memory system to those who
// bring the data. After `tries` looks in vain the number of a missing word (OTHERS_MISSING if other
// lanes miss some), else NONE_MISSING. All lanes of a warp stay together.
template <int V, class S, int R>
ET_HOT int64_t flag_poll(uint32_t epoch, const View<const Word, R>& from, S* tile, int tries) {
  constexpr int FLIGHT = 4 / V;
  const uint32_t n = word_count(from) / V, step = uint32_t(lanes());
  for (uint32_t base = uint32_t(lane()); base - uint32_t(lane()) < n; base += FLIGHT * step) {
    for (;;) {
      Word w[FLIGHT][V];
      int64_t missing = NONE_MISSING;
#pragma unroll
      for (int f = 0; f < FLIGHT; ++f)
        if (base + f * step < n) words_load(word_at(from, (base + f * step) * V), w[f]);
#pragma unroll
      for (int f = 0; f < FLIGHT; ++f) {
        const uint32_t e = (base + f * step) * V;
        if (base + f * step < n) {
#pragma unroll
          for (int k = 0; k < V; ++k) {
            if (tag(w[f][k]) != epoch) missing = e + k;
            else tile[e + k] = payload<S>(w[f][k]);
          }
        }
      }
      const unsigned lanes_missing = __ballot_sync(~0u, missing != NONE_MISSING);
      if (lanes_missing == 0) break;
      bool came = --tries > 0;
      if (n > step && int(threadIdx.x % 32) == __ffs(int(lanes_missing)) - 1) {
        const Word* const at = word_at(from, uint32_t(missing));
        while (!(came = tag(word_load(at)) == epoch) && --tries > 0) {}
      }
      if (__any_sync(~0u, !came)) return missing == NONE_MISSING ? OTHERS_MISSING : missing;
    }
  }
  return NONE_MISSING;
}

// Word by word, for regions that are not made of pairs and for the long way: one copy of it.
template <class S, int R>
ET_COLD int64_t flag_poll_single(uint32_t epoch, View<const Word, R> from, S* tile, int tries) {
  return flag_poll<1>(epoch, from, tile, tries);
}

// The long way of a read. Between two looks the threads meet, so that they give up together; the
// leading one decides.
template <class S, int R>
ET_COLD bool flag_long(const Shared& shared, int64_t worker, uint32_t epoch,
                       View<const Word, R> from, S* tile, int64_t tensor, const Word* base) {
  Patience patience(shared, worker);
  for (;;) {
    const int64_t missing = flag_poll_single(epoch, from, tile, 64);
    if (!sync_or(missing != NONE_MISSING)) return true;
    const bool leave = leads() && aborted(shared), stuck = leads() && !patience.pause();
    if (sync_or(leave)) return false;
    if (!sync_or(stuck)) continue;
    if (missing < 0) return false;
    const Word* const at = word_at(from, uint32_t(missing));
    return fail_at(shared, worker, where(), STUCK_FLAG, tensor, at - base, epoch,
                   tag(word_load(at)));
  }
}

// Copies a region of words into a dense tile, once all of them are there; false (in all threads) if
// the launch is given up. `tensor` and its first word `base` are for the report.
template <class S, int R>
ET_HOT bool flag_read(const Worker& w, const View<const Word, R>& from, S* tile, int64_t tensor,
                      const Word* base) {
  constexpr int TRIES = 256;  // some hundred microseconds: then one may ask whether anything moves
  const int64_t missing = word_pairs(from) ? flag_poll<2>(w.epoch, from, tile, TRIES)
                                           : flag_poll_single(w.epoch, from, tile, TRIES);
  return !sync_or(missing != NONE_MISSING) ||
         flag_long(*w.shared, w.index, w.epoch, from, tile, tensor, base);
}

}  // namespace et
