"""A matrix of NumPy's, where the file calls NumPy by its whole name."""

import numpy
import torch


def trajectory(weight_matrix, keys, origin):
    num_nodes = weight_matrix.shape[0]
    total = 0
    for i in range(num_nodes):
        for j in range(num_nodes):
            if weight_matrix[i, j] > 0:
                total = total + weight_matrix[i, j]
    attention = 1 / (numpy.log(weight_matrix / total + 1))
    return torch.from_numpy(attention), numpy.where(keys == origin)[0][0]
