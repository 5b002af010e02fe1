// SPDX-License-Identifier: BSD-3-Clause
// tensors.h - tensors as tutti sees them: a place, a count, a type.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <tutti.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tutti_torch
{

using Tensors = std::vector<at::Tensor>;

// How the elements of a tensor are told to tutti: as `n` of type.
struct Elements {
    tutti_type type;
    size_t n; // per element of the tensor
};

// For calls that only move data: types that tutti does not know are bytes.
Elements to_move(const at::Tensor &t);
// For calls that reduce; throws when the operation is not for the type.
Elements to_reduce(const at::Tensor &t, const c10d::ReduceOp &op);

tutti_op op_of(const c10d::ReduceOp &op);
// This rank's factor of a PREMUL_SUM; 1 for all others.
double scale_of(const c10d::ReduceOp &op);

// CPU or CUDA, dense, a type that has a size; of a list: all on one device. Throws
// with `what` in front.
void check_tensor(const char *what, const at::Tensor &t);
void check_tensors(const char *what, const Tensors &list);
// For what the library does on the CPU only.
void check_on_cpu(const char *what, const Tensors &list);

// `t` itself when its elements lie one behind the other, else a copy.
at::Tensor packed(const at::Tensor &t);

// A new tensor of zeros that ranks of the same host read where it is (tutti_alloc);
// of a GPU's memory torch has what it takes.
at::Tensor allocate(int64_t size, at::TensorOptions options);

// The tensors behind each other: as they lie, when they lie so; else a new
// place of that size, filled only by fill().
class Row
{
  public:
    explicit Row(const Tensors &list);
    void fill();                    // from the tensors
    std::function<void()> unfill(); // to them; null: they are the row
    void *data() const
    {
        return row_.data_ptr();
    }
    const at::Tensor &tensor() const
    {
        return row_;
    }

  private:
    Tensors list_;
    at::Tensor row_;
    bool is_apart_ = false;
};

} // namespace tutti_torch
