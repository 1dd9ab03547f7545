// Element types and reductions that every transport and algorithm understands, and views of typed memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace trireme {

/// IEEE half and bfloat16 as bits: storage types; arithmetic happens in float (comm/reduce/reduce.h).
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

enum class DataType : uint8_t { kFloat, kDouble, kHalf, kBFloat16, kInt32, kInt64, kUInt8 };
enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax, kProduct };

/// Where an operand lies: memory of the host, or of the GPU that is attached to the communicator (comm/cuda).
enum class Place : uint8_t { kHost, kGpu };

size_t size_of(DataType type);
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);

template <DataType kType>
struct IsDataType {
  static constexpr DataType value = kType;
};
template <typename T>
struct DataTypeOf;
template <>
struct DataTypeOf<float> : IsDataType<DataType::kFloat> {};
template <>
struct DataTypeOf<double> : IsDataType<DataType::kDouble> {};
template <>
struct DataTypeOf<Half> : IsDataType<DataType::kHalf> {};
template <>
struct DataTypeOf<BFloat16> : IsDataType<DataType::kBFloat16> {};
template <>
struct DataTypeOf<int32_t> : IsDataType<DataType::kInt32> {};
template <>
struct DataTypeOf<int64_t> : IsDataType<DataType::kInt64> {};
template <>
struct DataTypeOf<uint8_t> : IsDataType<DataType::kUInt8> {};

/// A view of `count` elements that a collective reads. Made from any span or contiguous container of a known type.
struct ConstData {
  const std::byte* bytes = nullptr;
  size_t count = 0;
  DataType type = DataType::kUInt8;
  Place place = Place::kHost;

  ConstData() = default;
  ConstData(const void* data, size_t count_, DataType type_, Place place_ = Place::kHost)
      : bytes(static_cast<const std::byte*>(data)), count(count_), type(type_), place(place_) {}
  template <typename Range>
  requires requires(const Range& r) {
    std::span(r.data(), r.size());
    DataTypeOf<typename Range::value_type>::value;
  }
  ConstData(const Range& range)
      : ConstData(range.data(), range.size(), DataTypeOf<typename Range::value_type>::value) {}

  size_t num_bytes() const { return count * size_of(type); }
  ConstData part(size_t first, size_t n) const { return {bytes + first * size_of(type), n, type, place}; }
};

/// A view of `count` elements that a collective writes.
struct Data {
  std::byte* bytes = nullptr;
  size_t count = 0;
  DataType type = DataType::kUInt8;
  Place place = Place::kHost;

  Data() = default;
  Data(void* data, size_t count_, DataType type_, Place place_ = Place::kHost)
      : bytes(static_cast<std::byte*>(data)), count(count_), type(type_), place(place_) {}
  template <typename Range>
  requires requires(Range& r) {
    std::span(r.data(), r.size());
    DataTypeOf<typename std::remove_reference_t<Range>::value_type>::value;
  }
  Data(Range&& range)
      : Data(range.data(), range.size(), DataTypeOf<typename std::remove_reference_t<Range>::value_type>::value) {}

  operator ConstData() const { return {bytes, count, type, place}; }
  size_t num_bytes() const { return count * size_of(type); }
  Data part(size_t first, size_t n) const { return {bytes + first * size_of(type), n, type, place}; }
};

}  // namespace trireme
