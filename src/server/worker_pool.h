// A few threads for work that the io thread may not wait for: parsing, templates, tokenizing,
// grammars; and, with one thread, answers in order.
// Thread rule: post() from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace trine::server {

class WorkerPool {
 public:
  WorkerPool(int num_threads, std::size_t max_queued);
  // Runs what is queued, then ends the threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full: nothing was taken.
  bool post(std::function<void()> work);
  std::size_t num_queued() const;

 private:
  void run();

  const std::size_t max_queued_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trine::server
