// SPDX-License-Identifier: BSD-3-Clause
// tensors.cpp - see tensors.h. Next: group.cpp.
#include "tensors.h"

#include <algorithm>

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include "device.h"

namespace tutti_torch
{

namespace
{

bool find_type(at::ScalarType type, tutti_type *out)
{
    switch (type) {
    case at::kChar:
        *out = TUTTI_I8;
        return true;
    case at::kByte:
        *out = TUTTI_U8;
        return true;
    case at::kInt:
        *out = TUTTI_I32;
        return true;
    case at::kLong:
        *out = TUTTI_I64;
        return true;
    case at::kHalf:
        *out = TUTTI_F16;
        return true;
    case at::kBFloat16:
        *out = TUTTI_BF16;
        return true;
    case at::kFloat:
        *out = TUTTI_F32;
        return true;
    case at::kDouble:
        *out = TUTTI_F64;
        return true;
    case at::kBool:
        *out = TUTTI_BOOL;
        return true;
    case at::kUInt32:
        *out = TUTTI_U32;
        return true;
    case at::kUInt64:
        *out = TUTTI_U64;
        return true;
    default:
        return false;
    }
}

bool is_linear(tutti_op op)
{
    return op == TUTTI_SUM || op == TUTTI_AVG || op == TUTTI_SCALED_SUM;
}

} // namespace

Elements to_move(const at::Tensor &t)
{
    tutti_type type = TUTTI_U8;
    if (find_type(t.scalar_type(), &type))
        return {type, 1};
    return {TUTTI_U8, static_cast<size_t>(t.element_size())};
}

Elements to_reduce(const at::Tensor &t, const c10d::ReduceOp &op)
{
    const tutti_op how = op_of(op);
    Elements e{TUTTI_U8, 1};
    // A complex number is two real ones, as far as sums go.
    if (t.scalar_type() == at::kComplexFloat && is_linear(how))
        return {TUTTI_F32, 2};
    if (t.scalar_type() == at::kComplexDouble && is_linear(how))
        return {TUTTI_F64, 2};
    TORCH_CHECK(find_type(t.scalar_type(), &e.type),
                "Invalid scalar type: tutti does not reduce ", t.scalar_type());
    if (tutti_op_check(how, e.type) == TUTTI_OK)
        return e;
    const bool is_bits = how == TUTTI_BAND || how == TUTTI_BOR ||
                         how == TUTTI_BXOR;
    TORCH_CHECK(!is_bits, "Cannot use ReduceOp.",
                how == TUTTI_BAND  ? "BAND"
                : how == TUTTI_BOR ? "BOR"
                                   : "BXOR",
                " with non-integral dtype");
    TORCH_CHECK(false, "Cannot use ReduceOp ", tutti_op_name(how), " with ",
                t.scalar_type());
}

tutti_op op_of(const c10d::ReduceOp &op)
{
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
        return TUTTI_SUM;
    case c10d::ReduceOp::AVG:
        return TUTTI_AVG;
    case c10d::ReduceOp::PRODUCT:
        return TUTTI_PROD;
    case c10d::ReduceOp::MIN:
        return TUTTI_MIN;
    case c10d::ReduceOp::MAX:
        return TUTTI_MAX;
    case c10d::ReduceOp::BAND:
        return TUTTI_BAND;
    case c10d::ReduceOp::BOR:
        return TUTTI_BOR;
    case c10d::ReduceOp::BXOR:
        return TUTTI_BXOR;
    case c10d::ReduceOp::PREMUL_SUM:
        return TUTTI_SCALED_SUM;
    default:
        TORCH_CHECK(false, "Unhandled ReduceOp");
    }
}

double scale_of(const c10d::ReduceOp &op)
{
    if (op_of(op) != TUTTI_SCALED_SUM)
        return 1;
    const auto *with = dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(
        op.supplement_.get());
    TORCH_CHECK(with != nullptr, "ReduceOp.PREMUL_SUM without a factor");
    return with->tensor_factor.defined()
               ? with->tensor_factor.to(at::kCPU, at::kDouble).item<double>()
               : with->double_factor;
}

void check_tensor(const char *what, const at::Tensor &t)
{
    TORCH_CHECK(t.defined(), "ProcessGroupTutti::", what, ": undefined tensor");
    TORCH_CHECK(t.is_cpu() || t.is_cuda(), "ProcessGroupTutti::", what,
                ": only supports CPU and CUDA tensors, this one is on ",
                t.device(),
                "; for other devices name a backend each: "
                "init_process_group(\"cpu:tutti,xpu:xccl\")");
    TORCH_CHECK(t.layout() == at::kStrided, "ProcessGroupTutti::", what,
                ": only supports dense tensors");
    TORCH_CHECK(
        !t.is_conj() && !t.is_neg(), "ProcessGroupTutti::", what,
        ": a lazy conjugate or negative; call resolve_conj() or resolve_neg()");
}

void check_tensors(const char *what, const Tensors &list)
{
    for (const auto &t : list)
        check_tensor(what, t);
    device_of(what, list);
}

void check_on_cpu(const char *what, const Tensors &list)
{
    for (const auto &t : list)
        TORCH_CHECK(t.is_cpu(), "ProcessGroupTutti::", what,
                    ": only supports CPU tensors, this one is on ", t.device());
}

at::Tensor packed(const at::Tensor &t)
{
    return t.is_contiguous() ? t : t.contiguous();
}

// -------------------------------------------------------------------- row --

namespace
{

bool is_row(const Tensors &list)
{
    for (size_t i = 0; i < list.size(); i++) {
        const auto &t = list[i];
        if (!t.is_contiguous() || !t.storage().is_alias_of(list[0].storage()))
            return false;
        if (i > 0 &&
            t.data_ptr() != static_cast<char *>(list[i - 1].data_ptr()) +
                                list[i - 1].nbytes())
            return false;
    }
    return !list.empty();
}

} // namespace

at::Tensor allocate(int64_t size, at::TensorOptions options)
{
    if (!options.device().is_cpu())
        return at::zeros({size}, options);
    const auto bytes = static_cast<size_t>(size) * options.dtype().itemsize();
    void *ptr = tutti_alloc(std::max<size_t>(bytes, 1));
    TORCH_CHECK(ptr != nullptr, "tutti: out of memory for ", bytes, " bytes");
    return at::from_blob(
        ptr, {size}, [](void *p) { tutti_free(p); }, options.device(at::kCPU));
}

Row::Row(const Tensors &list) : list_(list)
{
    if (is_row(list)) {
        row_ = list[0];
        return;
    }
    int64_t n = 0;
    for (const auto &t : list)
        n += t.numel();
    is_apart_ = true;
    row_ = at::empty({n}, list.empty()
                              ? at::TensorOptions()
                              : at::TensorOptions()
                                    .dtype(list[0].dtype())
                                    .device(list[0].device()));
}

void Row::fill()
{
    int64_t at = 0;
    for (size_t i = 0; is_apart_ && i < list_.size(); i++) {
        const auto &t = list_[i];
        row_.narrow(0, at, t.numel()).view(t.sizes()).copy_(t.detach());
        at += t.numel();
    }
}

std::function<void()> Row::unfill()
{
    if (!is_apart_)
        return nullptr;
    for (const auto &t : list_)
        at::assert_no_internal_overlap(t); // before anything is sent
    return [list = list_, row = row_] {
        int64_t at = 0;
        for (const auto &t : list) {
            t.detach().copy_(row.narrow(0, at, t.numel()).view(t.sizes()));
            at += t.numel();
        }
    };
}

} // namespace tutti_torch
