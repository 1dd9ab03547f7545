#include "trireme/compress/cuda/gpu_processor.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <bit>

#include "trireme/base/error.h"
#include "trireme/comm/cuda/cuda_objects.h"
#include "trireme/compress/cuda/array_kernels.h"
#include "trireme/compress/cuda/block_kernels.h"
#include "trireme/compress/cuda/low_rank_kernels.h"
#include "trireme/compress/cuda/one_bit_kernels.h"
#include "trireme/compress/cuda/sparse_kernels.h"
#include "trireme/compress/formats/arithmetic.h"
#include "trireme/compress/formats/sparse_format.h"
#include "trireme/gpu/wait.h"

namespace trireme {
namespace {

class GpuProcessor : public Processor {
 public:
  GpuProcessor(int device, std::optional<void*> stream)
      : device_(device), owns_stream_(!stream), events_(std::make_shared<EventPool>(device)) {
    const DeviceGuard guard(device_);
    if (stream) {
      stream_ = static_cast<cudaStream_t>(*stream);
    } else {
      gpu::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    }
    state_ = allocate(sizeof(gpu::SelectState));
  }
  ~GpuProcessor() override {
    const DeviceGuard guard(device_);
    if (owns_stream_) cudaStreamDestroy(stream_);
  }

  Place place() const override { return Place::kGpu; }
  CallOptions call_options() const override {
    CallOptions options;
    options.stream = stream_;
    return options;
  }
  Buffer allocate(size_t num_bytes) override {
    if (num_bytes == 0) return {};
    const DeviceGuard guard(device_);
    void* memory = nullptr;
    gpu::check(cudaMalloc(&memory, whole_blocks(num_bytes)), "cudaMalloc");
    std::shared_ptr<void> owner(memory, [](void* freed) { cudaFree(freed); });
    gpu::check(cudaMemsetAsync(memory, 0, num_bytes, stream_), "cudaMemset");
    return {std::move(owner), num_bytes};
  }
  Buffer allocate_for(Communicator& comm, size_t num_bytes) override { return comm.allocate_gpu(num_bytes); }

  std::function<void()> after(void* stream) override {
    const DeviceGuard guard(device_);
    const auto event = std::make_shared<EventPool::Event>(events_->take());
    gpu::check(cudaEventRecord(event->get(), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
    return [this, event] {
      gpu::check(cudaSetDevice(device_), "cudaSetDevice");
      gpu::check(cudaStreamWaitEvent(stream_, event->get(), 0), "cudaStreamWaitEvent");
    };
  }
  void finish() override { gpu::wait_for(stream_, "compression"); }

  void to_host(std::span<const float> from, std::span<float> to) override {
    move(from.data(), to.data(), from.size_bytes(), cudaMemcpyDeviceToHost);
    finish();
  }
  void from_host(std::span<const float> from, std::span<float> to) override {
    move(from.data(), to.data(), from.size_bytes(), cudaMemcpyHostToDevice);
    finish();
  }
  void copy(std::span<const float> from, std::span<float> to) override {
    move(from.data(), to.data(), from.size_bytes(), cudaMemcpyDeviceToDevice);
  }
  void clear(std::span<float> values) override {
    gpu::check(cudaMemsetAsync(values.data(), 0, values.size_bytes(), stream_), "cudaMemset");
  }
  void add_into(std::span<float> into, std::span<const float> from) override {
    gpu::add_into(into.data(), from.data(), into.size(), stream_);
  }
  void scale_by(std::span<float> values, float factor) override {
    gpu::scale_by(values.data(), values.size(), factor, stream_);
  }
  void weigh(float a, std::span<const float> x, float b, std::span<const float> y, std::span<float> out) override {
    gpu::weigh(a, x.data(), b, y.data(), out.data(), out.size(), stream_);
  }
  double dot_product(std::span<const float> a, std::span<const float> b) override {
    double sum = 0;
    for (const double block : read_doubles((a.size() + kDotBlock - 1) / kDotBlock, [&](double* sums) {
           gpu::dot_blocks(a.data(), b.data(), a.size(), sums, stream_);
         })) {
      sum += block;
    }
    return sum;
  }
  void clamp_to(std::span<float> values, float limit) override {
    gpu::clamp_to(values.data(), values.size(), limit, stream_);
  }
  void clear_not_finite(std::span<float> values) override {
    gpu::clear_not_finite(values.data(), values.size(), nullptr, stream_);
  }

  void encode(BlockFormat format, std::span<const float> values, std::span<uint8_t> out, const RandomKey& random,
              uint64_t first) override {
    gpu::encode_blocks(format, const_cast<float*>(values.data()), values.size(), out.data(), random, first, false,
                       stream_);
  }
  void encode_keeping_rest(BlockFormat format, std::span<float> values, std::span<uint8_t> out, const RandomKey& random,
                           uint64_t first) override {
    gpu::encode_blocks(format, values.data(), values.size(), out.data(), random, first, true, stream_);
  }
  void decode(BlockFormat format, std::span<const uint8_t> in, std::span<float> out, bool add) override {
    gpu::decode_blocks(format, in.data(), out.size(), out.data(), add, stream_);
  }

  size_t take(std::span<float> from, size_t k, Buffer& out, std::span<float> also) override {
    if (from.empty()) return 0;
    grow(scratch_, gpu::select_scratch(from.size()));
    auto* const state = static_cast<gpu::SelectState*>(state_.data());
    const size_t taken = std::min(k, from.size());
    gpu::find_largest(from.data(), from.size(), taken, state, scratch_.data(), stream_);
    gpu::count_taken(from.data(), from.size(), state, scratch_.data(), stream_);
    const size_t num_bytes = sparse_bytes(from.size(), taken);
    grow(out, num_bytes);
    gpu::take_counted(from.data(), also.data(), from.size(), taken, state, scratch_.data(),
                      static_cast<uint8_t*>(out.data()), stream_);
    return num_bytes;
  }
  void add_sparse(std::span<const uint8_t> in, std::span<float> out) override {
    const size_t taken = (in.size() - std::min(in.size(), sparse_bytes(out.size(), 0))) / 6;
    if (in.size() != sparse_bytes(out.size(), taken)) {
      throw Error(fmt::format("a sparse message of {} bytes does not fit {} elements", in.size(), out.size()),
                  "give all ranks the same groups");
    }
    gpu::add_sparse(in.data(), taken, out.data(), out.size(), stream_);
  }

  void project(const LowRank& shape, std::span<const float> group, std::span<const float> q,
               std::span<float> p) override {
    gpu::project(shape, group.data(), q.data(), p.data(), stream_);
  }
  void make_orthonormal(const LowRank& shape, std::span<float> p) override {
    grow(doubles_, shape.num_p * sizeof(double));
    gpu::make_orthonormal(shape, p.data(), static_cast<double*>(doubles_.data()), stream_);
  }
  void project_back(const LowRank& shape, std::span<const float> group, std::span<const float> p,
                    std::span<float> q) override {
    gpu::project_back(shape, group.data(), p.data(), q.data(), stream_);
  }
  void expand(const LowRank& shape, std::span<const float> p, std::span<const float> q, bool subtract,
              std::span<float> group) override {
    gpu::expand(shape, p.data(), q.data(), subtract, group.data(), stream_);
  }
  std::vector<double> row_squares(const LowRank& shape, std::span<const float> q) override {
    const DeviceGuard guard(device_);
    return read_doubles(shape.num_rows_of_q(),
                        [&](double* squares) { gpu::row_squares(shape, q.data(), squares, stream_); });
  }
  void scale_rows(const LowRank& shape, std::span<const float> factors, std::span<float> q) override {
    const DeviceGuard guard(device_);
    grow(factors_, factors.size_bytes());
    move(factors.data(), factors_.data(), factors.size_bytes(), cudaMemcpyHostToDevice);
    gpu::scale_rows(shape, static_cast<const float*>(factors_.data()), q.data(), stream_);
  }

  void to_moves(const OneBitAdamSettings& settings, uint64_t warmup_steps, int num_ranks, std::span<float> values,
                std::span<const float> momentum, std::span<const float> second) override {
    gpu::to_moves(settings, root_factor(settings, warmup_steps), num_ranks, values.data(), momentum.data(),
                  second.data(), values.size(), stream_);
  }
  void to_momentum(const OneBitAdamSettings& settings, uint64_t warmup_steps, std::span<const float> moves,
                   std::span<const float> second, std::span<float> momentum) override {
    gpu::to_momentum(settings, root_factor(settings, warmup_steps), moves.data(), second.data(), momentum.data(),
                     moves.size(), stream_);
  }
  void frozen_adam_step(const OneBitAdamSettings& settings, std::span<const float> moves, std::span<const float> second,
                        std::span<float> weight) override {
    gpu::frozen_adam_step(settings, moves.data(), second.data(), weight.data(), weight.size(), stream_);
  }

 private:
  void move(const void* from, void* to, size_t num_bytes, cudaMemcpyKind kind) {
    gpu::check(cudaMemcpyAsync(to, from, num_bytes, kind, stream_), "cudaMemcpy");
  }
  /// What `enqueue` leaves in an array of so many; waits for it.
  template <typename Enqueue>
  std::vector<double> read_doubles(size_t count, Enqueue enqueue) {
    std::vector<double> values(count);
    if (count == 0) return values;
    grow(doubles_, count * sizeof(double));
    enqueue(static_cast<double*>(doubles_.data()));
    move(doubles_.data(), values.data(), count * sizeof(double), cudaMemcpyDeviceToHost);
    finish();
    return values;
  }
  /// What it held may be lost.
  void grow(Buffer& buffer, size_t num_bytes) {
    if (buffer.num_bytes() < num_bytes) buffer = allocate(num_bytes);
  }

  const int device_;
  const bool owns_stream_;
  const std::shared_ptr<EventPool> events_;
  cudaStream_t stream_ = nullptr;
  Buffer state_, scratch_;  ///< of the choice of elements
  Buffer doubles_;          ///< sums on their way to the host, columns on their way to being orthonormal
  Buffer factors_;          ///< of rows
};

}  // namespace

std::unique_ptr<Processor> make_gpu_processor(int device, std::optional<void*> stream) {
  return std::make_unique<GpuProcessor>(device, stream);
}

}  // namespace trireme
