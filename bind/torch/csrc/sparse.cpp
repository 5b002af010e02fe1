// SPDX-License-Identifier: BSD-3-Clause
// sparse.cpp - all-reduce of sparse tensors; see group.h.
//
// As Gloo does it: all ranks get all indices and values and add them up, in the
// order of the ranks, so that all have the same bits. How many values the others
// have must be known before room for them can be had, and the calls must come in
// the same order on all ranks: so the call first waits for that (until all ranks
// have called it), also when it is asynchronous. Cost: the values of all ranks on
// each rank.
#include "parts.h"

namespace tutti_torch
{

namespace
{

const int64_t max_dims = 16;

void check_sparse(const Tensors &tensors, const c10d::ReduceOp &op)
{
    const auto fail = complain("allreduce");
    for (const auto &t : tensors) {
        TORCH_CHECK(t.defined(), "ProcessGroupTutti::allreduce: undefined");
        if (t.layout() != at::kSparse || !t.device().is_cpu())
            fail("all tensors must be sparse (COO) tensors on the CPU");
        if (t.scalar_type() != tensors[0].scalar_type() ||
            t.sizes() != tensors[0].sizes())
            fail("all tensors must have the same type and sizes");
        if (t.dim() > max_dims)
            fail(c10::str("sparse tensors of more than ", max_dims,
                          " dimensions"));
    }
    if (static_cast<c10d::ReduceOp::RedOpType>(op) != c10d::ReduceOp::SUM)
        fail("Unsupported reduction operation: only SUM for sparse tensors");
}

// One tensor from those of this rank.
at::Tensor sum_of(const Tensors &tensors)
{
    auto sum = tensors[0].detach();
    for (size_t i = 1; i < tensors.size(); i++)
        sum = sum + tensors[i].detach();
    return sum.coalesce();
}

} // namespace

// A row per rank: nnz, type, sparse dimensions, dimensions, sizes.
at::Tensor ProcessGroupTutti::gather_shapes(const at::Tensor &mine,
                                            Millis timeout)
{
    const int64_t width = 4 + max_dims;
    auto all = at::zeros({size_, width}, at::kLong);
    auto *row = all.data_ptr<int64_t>() + rank_ * width;
    row[0] = mine._nnz();
    row[1] = static_cast<int64_t>(mine.scalar_type());
    row[2] = mine.sparse_dim();
    row[3] = mine.dim();
    for (int64_t i = 0; i < mine.dim(); i++)
        row[4 + i] = mine.size(i);
    auto call = std::make_shared<Call>(comm_, "all-reduce of sparse tensors");
    auto opts = options_of(timeout);
    opts.waits = true;
    call->add(
        opts,
        [&](auto *c, auto *o, auto **req) {
            return tutti_all_gather(c, row, all.data_ptr(),
                                    static_cast<size_t>(width), TUTTI_I64, o,
                                    req);
        },
        {all}, nullptr);
    call->wait(kNoTimeout);
    for (int r = 0; r < size_; r++)
        TORCH_CHECK(at::equal(all[r].narrow(0, 1, width - 1),
                              all[0].narrow(0, 1, width - 1)),
                    "Sparse dimensions do not match: rank ", r,
                    " has another type or other sizes than rank 0");
    return all;
}

WorkPtr ProcessGroupTutti::allreduce_sparse(Tensors &tensors,
                                            const c10d::AllreduceOptions &opts)
{
    at::AutoDispatchBelowAutograd guard;
    at::Tensor mine, shapes;
    if (!accepts([&] {
            c10d::assertNonEmpty(complain("allreduce"), tensors);
            check_sparse(tensors, opts.reduceOp);
            mine = sum_of(tensors);
            shapes = gather_shapes(mine, opts.timeout);
        }))
        return nullptr;
    const auto indices = mine.indices().contiguous();
    const auto values = mine.values().contiguous();
    const auto width = mine._nnz() ? values.numel() / mine._nnz()
                                   : c10::multiply_integers(
                                         mine.sizes().slice(mine.sparse_dim()));
    std::vector<size_t> n_indices, n_values;
    std::vector<int64_t> nnz;
    int64_t total = 0;
    const auto e = to_move(values);
    for (int r = 0; r < size_; r++) {
        nnz.push_back(shapes[r][0].item<int64_t>());
        total += nnz.back();
        n_indices.push_back(static_cast<size_t>(nnz[r] * mine.sparse_dim()));
        n_values.push_back(static_cast<size_t>(nnz[r] * width) * e.n);
    }
    auto all_indices = at::empty({total * mine.sparse_dim()}, at::kLong);
    auto sizes = values.sizes().vec();
    sizes[0] = total;
    auto all_values = at::empty(sizes, values.options());
    const auto add_up = [tensors, nnz, all_indices, all_values, mine] {
        at::AutoDispatchBelowAutograd below;
        Tensors parts;
        int64_t from = 0;
        for (const auto n : nnz) {
            const auto m = n * mine.sparse_dim();
            parts.push_back(
                all_indices.narrow(0, from, m).view({mine.sparse_dim(), n}));
            from += m;
        }
        const auto sum = at::sparse_coo_tensor(at::cat(parts, 1), all_values,
                                               mine.sizes(), mine.options())
                             .coalesce();
        for (const auto &t : tensors)
            t.copy_(sum); // detach() would leave it as long as it was
    };
    return start(job(OpType::_ALLREDUCE_SPARSE, opts, {}, {tensors}),
                 [&](Call &call, const tutti_call_opts &o) {
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             return tutti_all_gather_v(
                                 c, indices.data_ptr(), all_indices.data_ptr(),
                                 n_indices.data(), TUTTI_I64, p, req);
                         },
                         {indices, all_indices}, nullptr);
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             return tutti_all_gather_v(
                                 c, values.data_ptr(), all_values.data_ptr(),
                                 n_values.data(), e.type, p, req);
                         },
                         {values, all_values}, add_up);
                 });
}

} // namespace tutti_torch
