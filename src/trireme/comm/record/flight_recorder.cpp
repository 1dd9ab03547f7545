#include "trireme/comm/record/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {

FlightRecorder::FlightRecorder() : slots_(new Slot[kCapacity]) {}

std::vector<FlightRecord> FlightRecorder::records() const {
  std::vector<FlightRecord> records;
  const uint64_t end = next_.load(std::memory_order_acquire);
  for (uint64_t i = end - std::min<uint64_t>(end, kCapacity); i < end; ++i) {
    const Slot& slot = slots_[i % kCapacity];
    FlightRecord record;
    const uint64_t packed = slot.words[0].load(std::memory_order_relaxed);
    record.digest.kind = static_cast<OperationKind>(packed & 0xff);
    record.digest.type = static_cast<DataType>(packed >> 8 & 0xff);
    record.digest.op = static_cast<ReduceOp>(packed >> 16 & 0xff);
    record.digest.algorithm = static_cast<Algorithm>(packed >> 24 & 0xff);
    record.digest.root = static_cast<int32_t>(packed >> 32);
    record.digest.count = slot.words[1].load(std::memory_order_relaxed);
    record.digest.sequence = slot.words[2].load(std::memory_order_relaxed);
    record.started_ns = slot.started_ns.load(std::memory_order_relaxed);
    record.ended_ns = slot.ended_ns.load(std::memory_order_relaxed);
    record.failed = record.ended_ns < 0;
    record.ended_ns = std::abs(record.ended_ns);
    records.push_back(record);
  }
  return records;
}

std::string FlightRecorder::to_json() const {
  std::string json = "[";
  for (const FlightRecord& record : records()) {
    const OperationDigest& digest = record.digest;
    json += fmt::format(
        "{}\n{{\"sequence\":{},\"operation\":\"{}\",\"type\":\"{}\",\"reduction\":\"{}\",\"count\":{},\"root\":{},"
        "\"algorithm\":\"{}\",\"started_ns\":{},\"ended_ns\":{},\"state\":\"{}\"}}",
        json.size() > 1 ? "," : "", digest.sequence, name_of(digest.kind), name_of(digest.type), name_of(digest.op),
        digest.count, digest.root, name_of(digest.algorithm), record.started_ns, record.ended_ns,
        record.failed          ? "failed"
        : record.ended_ns == 0 ? "under way"
                               : "done");
  }
  return json + "\n]";
}

}  // namespace trireme
