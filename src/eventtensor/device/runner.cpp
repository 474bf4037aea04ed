// The main of a standalone kernel: reads launches from one file, runs them on one pool, writes all
// tensors after each launch to another. Appended to generated source; int64 fields throughout.
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) { std::fprintf(stderr, "usage: %s ARGUMENTS RESULTS\n", argv[0]); return 2; }
  std::FILE* in = std::fopen(argv[1], "rb");
  std::FILE* out = std::fopen(argv[2], "wb");
  if (in == nullptr || out == nullptr) { std::fprintf(stderr, "cannot open files\n"); return 2; }
  auto number = [in] {
    int64_t x = 0;
    if (std::fread(&x, sizeof x, 1, in) != 1) std::fprintf(stderr, "arguments end early\n");
    return x;
  };
  const int64_t workers = number(), launches = number(), dim_count = number(), tensors = number();
  void* const pool = et_create(workers, 10.0);
  if (pool == nullptr) { std::fprintf(stderr, "no threads for the workers\n"); return 2; }
  int status = 0;
  for (int64_t k = 0; k < launches && status == 0; ++k) {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < dim_count; ++d) dims.push_back(number());
    std::vector<std::vector<char>> data;
    std::vector<void*> places;
    for (int64_t t = 0; t < tensors; ++t) {
      data.emplace_back(size_t(number()) + 1);
      const size_t bytes = data.back().size() - 1;
      if (std::fread(data.back().data(), 1, bytes, in) != bytes) status = 2;
    }
    for (auto& d : data) places.push_back(d.data());
    Launch launch{};
    launch.dims = dims.data();
    launch.tensors = places.data();
    launch.delay_seed = ET_DEBUG ? k + 1 : 0;
    Report report{};
    if (et_launch(pool, &launch, &report) != 0) {
      std::fprintf(stderr, "launch failed: code %lld call %lld expected %lld seen %lld\n",
                   (long long)report.code, (long long)report.call, (long long)report.expected,
                   (long long)report.seen);
      status = 3;
    }
    for (auto& d : data) std::fwrite(d.data(), 1, d.size() - 1, out);
  }
  et_destroy(pool);
  std::fclose(in);
  std::fclose(out);
  return status;
}
