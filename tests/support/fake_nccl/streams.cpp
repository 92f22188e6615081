// SPDX-License-Identifier: MIT
#include "streams.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

struct FakeStream {
  std::deque<std::function<bool()>> work;
};

namespace {

using Clock = std::chrono::steady_clock;

// A record of an event.
struct Mark {
  bool over = false;
  Clock::time_point when{};
};

std::recursive_mutex mutex;  // of all that follows
std::set<FakeStream*> streams;

// Returns when it holds, and goes on with the work of streams until then.
template <class Condition>
void wait_until(Condition holds) {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      kformer::Testing::advance_streams();
      if (holds()) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void enqueue_when_there_is_room(cudaStream_t stream, std::function<bool()> advance) {
  wait_until([&] { return stream->work.size() < kformer::Testing::most_work; });
  kformer::Testing::enqueue(stream, std::move(advance));
}

}  // namespace

struct FakeEvent {
  std::shared_ptr<Mark> mark = std::make_shared<Mark>(Mark{.over = true});
};

namespace kformer::Testing {

void enqueue(cudaStream_t stream, std::function<bool()> advance) {
  const std::lock_guard lock(mutex);
  stream->work.push_back(std::move(advance));
}

void advance_streams() {
  const std::lock_guard lock(mutex);
  for (bool moved = true; std::exchange(moved, false);)
    for (FakeStream* stream : streams)
      while (!stream->work.empty() && stream->work.front()()) {
        stream->work.pop_front();
        moved = true;
      }
}

void wait_for_device() {
  wait_until([] { return std::ranges::all_of(streams, [](const FakeStream* s) { return s->work.empty(); }); });
}

}  // namespace kformer::Testing

using kformer::Testing::advance_streams;

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "other"; }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const bool host = data != nullptr && data == kformer::Testing::memory_of_the_host;
  attributes->type = host ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  streams.insert(*stream = new FakeStream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  advance_streams();
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_until([&] { return stream->work.empty(); });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  enqueue_when_there_is_room(stream, [mark = event->mark] { return mark->over; });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new FakeEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto mark = std::make_shared<Mark>();
  enqueue_when_there_is_room(stream, [mark] {
    mark->when = Clock::now();
    return mark->over = true;
  });
  const std::lock_guard lock(mutex);
  event->mark = mark;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  advance_streams();
  return event->mark->over ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  const std::lock_guard lock(mutex);
  if (!first->mark->over || !second->mark->over) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(second->mark->when - first->mark->when).count();
  return cudaSuccess;
}
