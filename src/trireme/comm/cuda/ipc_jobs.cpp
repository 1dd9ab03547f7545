#include "trireme/comm/cuda/ipc_jobs.h"

#include "trireme/base/error.h"

namespace trireme {

template <typename Source, typename Destination>
void IpcJobs::add(size_t sources, Source source, size_t destinations, Destination destination, size_t count) {
  if (count == 0) return;
  const size_t first = pointers_.size();
  for (size_t i = 0; i < sources; ++i) pointers_.push_back(source(i));
  for (size_t i = 0; i < destinations; ++i) pointers_.push_back(destination(i));
  gpu::CombineJob job;
  job.sources = {pointers_.data() + first, sources};
  job.destinations = {pointers_.data() + first + sources, destinations};
  job.count = count;
  jobs_.push_back(job);
}

IpcJobs make_ipc_jobs(const GpuRequest& request, const IpcPlaces& places, const std::vector<size_t>& counts) {
  const size_t p = places.in.size(), root = static_cast<size_t>(request.root < 0 ? 0 : request.root);
  const size_t width = size_of(type_of(request));
  const auto in = [&](size_t member, size_t element) { return places.in[member] + element * width; };
  const auto out = [&](size_t member, size_t element) { return places.out[member] + element * width; };
  IpcJobs jobs(p * (2 * p + 2));
  const auto copy = [&](size_t from, size_t at, size_t to, size_t into, size_t count) {
    jobs.add(
        1, [&](size_t) { return in(from, at); }, 1, [&](size_t) { return out(to, into); }, count);
  };
  switch (request.kind) {
    case OperationKind::kAllReduce:
      jobs.add(
          p, [&](size_t i) { return in(i, 0); }, p, [&](size_t i) { return out(i, 0); }, request.in.count);
      break;
    case OperationKind::kReduce:
      jobs.add(
          p, [&](size_t i) { return in(i, 0); }, 1, [&](size_t) { return out(root, 0); }, request.in.count);
      break;
    case OperationKind::kReduceScatter:
    case OperationKind::kReduceScatterV: {
      size_t at = 0;
      for (size_t to = 0; to < p; ++to) {
        const size_t count =
            request.kind == OperationKind::kReduceScatter ? request.out.count : request.send_counts[to];
        jobs.add(
            p, [&](size_t i) { return in(i, at); }, 1, [&](size_t) { return out(to, 0); }, count);
        at += count;
      }
      break;
    }
    case OperationKind::kBroadcast:
      if (p == 1) break;
      jobs.add(
          1, [&](size_t) { return in(root, 0); }, p - 1, [&](size_t i) { return out(i < root ? i : i + 1, 0); },
          request.out.count);
      break;
    case OperationKind::kScatter:
      for (size_t to = 0; to < p; ++to) copy(root, to * request.out.count, to, 0, request.out.count);
      break;
    case OperationKind::kGather:
      for (size_t from = 0; from < p; ++from) copy(from, 0, root, from * request.in.count, request.in.count);
      break;
    case OperationKind::kAllGather:
    case OperationKind::kAllGatherV: {
      size_t at = 0;
      for (size_t from = 0; from < p; ++from) {
        const size_t count = request.kind == OperationKind::kAllGather ? request.in.count : request.recv_counts[from];
        jobs.add(
            1, [&](size_t) { return in(from, 0); }, p, [&](size_t i) { return out(i, at); }, count);
        at += count;
      }
      break;
    }
    case OperationKind::kAllToAll: {
      const size_t block = request.in.count / p;
      for (size_t from = 0; from < p; ++from) {
        for (size_t to = 0; to < p; ++to) copy(from, to * block, to, from * block, block);
      }
      break;
    }
    case OperationKind::kAllToAllV: {
      std::vector<size_t> into(p, 0);
      for (size_t from = 0; from < p; ++from) {
        size_t at = 0;
        for (size_t to = 0; to < p; ++to) {
          const size_t count = counts[from * p + to];
          copy(from, at, to, into[to], count);
          at += count;
          into[to] += count;
        }
      }
      break;
    }
    default:
      throw Error("this operation is not one that a GPU does: " + std::string(name_of(request.kind)));
  }
  return jobs;
}

}  // namespace trireme
