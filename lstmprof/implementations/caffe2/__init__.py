"""What runs in Caffe2, which came in PyTorch's packages from 1.0 on."""
